"""One partition of a topic against the answer: lost, doubled, dirty, or in the wrong order.

    lost      must stand there, and does not
    doubled   stands there more often than it must
    dirty     stands there, and must not: from an aborted transaction, or never right

Exactly once, the two are equal record by record. At least once, a stretch of output may come again,
from a worker that started from its last commit, and from one that did not know that it was no owner
any more. Each of them writes what follows what is committed, without a gap; so whatever is mixed
together that way, the first time that each record appears must give the answer, in its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.contracts.record import Record
from tests.kill.expected import Leaving

Content = tuple[object, ...]
Some = TypeVar("Some", Leaving, Record)
_SHOWN = 5


@dataclass
class Difference:
    """How far topics are from the answer."""

    records: int = 0
    lost: int = 0
    doubled: int = 0
    dirty: int = 0
    repeated: int = 0
    """Doubled, where that is allowed."""
    problems: list[str] = field(default_factory=list)

    def add(self, other: Difference) -> None:
        """Both together."""
        self.records += other.records
        self.lost += other.lost
        self.doubled += other.doubled
        self.dirty += other.dirty
        self.repeated += other.repeated
        self.problems += other.problems


def compare(
    where: str, expected: Sequence[Leaving], found: Sequence[Record], *, repeats: bool = False
) -> Difference:
    """The difference in one partition; `repeats` allows what at-least-once allows."""
    must, has = _counts(expected), _counts(found)
    lost, extra = must - has, has - must
    doubled = sum(times for content, times in extra.items() if content in must)
    dirty = extra.total() - doubled
    difference = Difference(len(found), lost.total(), doubled, dirty)
    if repeats:
        difference.doubled, difference.repeated = 0, doubled
        # A broker that died may have stored the source's own records twice: all of them must come.
        expected, found = _first_appearances(expected), _first_appearances(found)
    wrong = lost or dirty or difference.doubled
    if wrong or [one[:4] for one in expected] != [one[:4] for one in found]:
        what = (
            f"{lost.total()} lost, {difference.doubled} doubled, {dirty} dirty"
            if wrong
            else "all there, in another order"
        )
        problem = f"{where}: {what}; must be {len(expected)} records, are {len(found)}"
        difference.problems.append("\n".join([problem, *_first_difference(expected, found)]))
    return difference


def _counts(records: Sequence[Leaving] | Sequence[Record]) -> Counter[Content]:
    return Counter(one[:4] for one in records)


def _first_appearances(records: Sequence[Some]) -> list[Some]:
    first: dict[Content, Some] = {}
    for record in records:
        first.setdefault(record[:4], record)
    return list(first.values())


def _first_difference(expected: Sequence[Leaving], found: Sequence[Record]) -> list[str]:
    """The first record that is another one, and the source record behind the one that must be."""
    same = 0
    for must, has in zip(expected, found, strict=False):
        if must[:4] != has[:4]:
            break
        same += 1
    lines = [f"    the first {same} are right; then"]
    lines += [f"      must be  {_shown(one)}" for one in expected[same : same + _SHOWN]]
    lines += [f"      is       {_shown(one)}" for one in found[same : same + _SHOWN]]
    return lines


def _shown(record: Leaving | Record) -> str:
    headers = " ".join(f"{name}={value!r}" for name, value in record.headers)
    text = f"key={record.key!r} time={record.timestamp_ms} value={record.value!r} {headers}"
    if isinstance(record, Leaving):
        cause = record.cause
        return f"{text}  because of {cause.topic}/{cause.partition}@{cause.offset}"
    return f"{text}  at {record.topic}/{record.partition}@{record.offset}"
