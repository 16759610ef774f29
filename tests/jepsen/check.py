"""From a history, what went wrong.

    lost          acknowledged, and its transaction committed, and a reader who finished did not see
                  it
    aborted read  refused for certain, or of a transaction that did not commit, and read
    phantom       read, and nobody has written it
    duplicate     read by one reader more than once
    order         two values of one writer, read in one partition the other way round
    torn          some values of a transaction read by one who finished, and not the others
    disagreement  two readers saw different values at one place

An operation without an answer may have happened or not; but a transaction happens whole or not at
all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tests.jepsen.history import End, Finished, History, Outcome, Read, Write

Kind = Literal["lost", "aborted read", "phantom", "duplicate", "order", "torn", "disagreement"]


class Anomaly(NamedTuple):
    """One thing that no history of a right system has."""

    kind: Kind
    what: str


def anomalies(history: History) -> list[Anomaly]:
    """All of them, kind by kind."""
    seen = _Seen(history)
    found = [
        *_lost(seen),
        *_never_right(seen),
        *_duplicates(seen),
        *_out_of_order(seen),
        *_torn(seen),
        *_disagreements(seen),
    ]
    return [Anomaly(*one) for one in dict.fromkeys(found)]


_Found = Iterator[tuple[Kind, str]]


class _Seen:
    """A history, looked at from each side that is asked about."""

    def __init__(self, history: History) -> None:
        self.writes = {one.value: one for one in history if isinstance(one, Write)}
        self.place = {value: place for place, value in enumerate(self.writes)}
        ends = [one for one in history if isinstance(one, End)]
        self.commits = {one.transaction: _committed(one) for one in ends}
        self.reads: dict[str, list[Read]] = defaultdict(list)
        for one in history:
            if isinstance(one, Read):
                self.reads[one.reader].append(one)
        self.finished = [one.reader for one in history if isinstance(one, Finished)]
        self.of_transaction: dict[str, list[Write]] = defaultdict(list)
        for write in self.writes.values():
            if write.transaction is not None:
                self.of_transaction[write.transaction].append(write)

    def counts(self, write: Write) -> Outcome:
        """Whether a write must be there, must not be, or may be."""
        if write.outcome == "no" or write.transaction is None:
            return write.outcome
        # A transaction that nobody has ended is one that a broker may still abort, or has.
        ended = self.commits.get(write.transaction, "unknown")
        return write.outcome if ended == "yes" else ended

    def values_of(self, reader: str) -> set[str]:
        """The records that a reader has seen."""
        return {one.value for one in self.reads[reader]}


def _committed(end: End) -> Outcome:
    """Whether a transaction was committed.

    A commit that is refused has aborted; a transaction that was told to abort never commits.
    """
    return "no" if end.asked == "abort" else end.outcome


def _lost(seen: _Seen) -> _Found:
    must = {value for value, write in seen.writes.items() if seen.counts(write) == "yes"}
    for reader in seen.finished:
        for value in sorted(must - seen.values_of(reader), key=seen.place.__getitem__):
            write = seen.writes[value]
            yield "lost", f"{value} of {write.writer} in partition {write.partition}, by {reader}"


def _never_right(seen: _Seen) -> _Found:
    for reader, reads in seen.reads.items():
        for read in reads:
            write = seen.writes.get(read.value)
            if write is None or write.partition != read.partition:
                yield "phantom", f"{_at(read)}, by {reader}: {read.value}"
            elif seen.counts(write) == "no":
                yield "aborted read", f"{_at(read)}, by {reader}: {read.value} of {write.writer}"


def _duplicates(seen: _Seen) -> _Found:
    for reader, reads in seen.reads.items():
        for value, times in Counter(read.value for read in reads).items():
            if times > 1:
                yield "duplicate", f"{value}, {times} times by {reader}"


def _out_of_order(seen: _Seen) -> _Found:
    for reader, reads in seen.reads.items():
        latest: dict[tuple[str, int], Read] = {}
        last_offset: dict[int, int] = {}
        for read in reads:
            if read.offset <= last_offset.get(read.partition, -1):
                yield "order", f"{_at(read)} was read behind {last_offset[read.partition]}"
            last_offset[read.partition] = read.offset
            write = seen.writes.get(read.value)
            if write is None:
                continue
            before = latest.get((write.writer, read.partition))
            if before is not None and seen.place[before.value] > seen.place[read.value]:
                yield "order", f"{_at(read)}, by {reader}: {read.value} behind {before.value}"
            latest[write.writer, read.partition] = read


def _torn(seen: _Seen) -> _Found:
    """Of each transaction, those that were acknowledged are there together."""
    for reader in seen.finished:
        values = seen.values_of(reader)
        for transaction, writes in seen.of_transaction.items():
            acknowledged = [write.value for write in writes if write.outcome == "yes"]
            missing = [value for value in acknowledged if value not in values]
            if missing and any(write.value in values for write in writes):
                yield "torn", f"{transaction}, by {reader}: without {', '.join(missing)}"


def _disagreements(seen: _Seen) -> _Found:
    first: dict[tuple[int, int], Read] = {}
    for reads in seen.reads.values():
        for read in reads:
            other = first.setdefault((read.partition, read.offset), read)
            if other.value != read.value:
                yield (
                    "disagreement",
                    f"{_at(read)}: {other.value} to {other.reader}, {read.value} to {read.reader}",
                )


def _at(read: Read) -> str:
    return f"{read.partition}@{read.offset}"
