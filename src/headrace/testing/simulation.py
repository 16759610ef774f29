"""Simulate a pipeline, from the source's partitions to the cleaned topic, in one thread.

A commit covers all places. A crash takes all of them back to the last commit, and the records read
since are read again. So a record can pass a repartition before a commit, and still no place sees it
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from headrace.contracts.dead_letter import DeadLetter
from headrace.contracts.decision import Decision, Reason
from headrace.contracts.errors import ScenarioInvalid
from headrace.contracts.progress import Progress
from headrace.contracts.record import Record
from headrace.services.operators.careful import is_of_a_record
from headrace.services.operators.operator import Aside, Step
from headrace.testing.places import Place, World
from headrace.testing.tables import FAILED, Event, Leaving, leaving

NOBODY = -1
"""The row of results that no record of the run caused."""


class Entry(NamedTuple):
    """A record, and the row of the run that it belongs to."""

    record: Record
    row: int


@dataclass
class Outcome:
    """The results until now."""

    cleaned: list[Entry] = field(default_factory=list)
    late: list[Entry] = field(default_factory=list)
    dead: list[tuple[DeadLetter, int]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    leaves: list[tuple[int, Leaving]] = field(default_factory=list)
    """All results in order, each with its row."""
    failure: str | None = None
    taken: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    """Where each partition of the cleaned topic ends."""

    def copy(self) -> Outcome:
        """Return a copy, which does not change with later results."""
        return Outcome(
            [*self.cleaned],
            [*self.late],
            [*self.dead],
            [*self.decisions],
            [*self.leaves],
            self.failure,
            self.taken,
            self.ends.copy(),
        )


class Simulation:
    """One run."""

    def __init__(self, world: World) -> None:
        """Begin with empty places."""
        self.outcome = Outcome()
        self.progress: dict[int, Progress] = {}
        self._world = world
        self._hops = [
            [Place(world, hop, partition) for partition in range(world.partitions)]
            for hop in world.spec.hops()
        ]
        self._committed = self.outcome.copy()
        self._since: list[Entry] = []
        """The entries read since the last commit."""
        self._read: list[Entry] = []
        """The entries read and committed, in order."""
        self._is_careful = False
        self._row = NOBODY

    @property
    def has_failed(self) -> bool:
        """Whether the run is over."""
        return self.outcome.failure is not None

    def take(self, entries: Sequence[Entry]) -> None:
        """Take records in the order of fetching; those of one partition go together."""
        if self.has_failed:
            return
        try:
            self._take(entries)
        except Exception as problem:
            if self._is_careful or not is_of_a_record(problem):
                raise
            self._take_carefully([*self._since, *entries])

    def _take_carefully(self, entries: Sequence[Entry]) -> None:
        """Take again, record by record, what failed as a whole, as a sidecar does."""
        self._is_careful = True
        self._since = []
        self._go_back()
        self._take(entries)

    def _take(self, entries: Sequence[Entry]) -> None:
        for partition, group in groupby(entries, key=_partition_of):
            fetched = list(group)
            self._row = fetched[-1].row
            self.outcome.taken += self._bring(self._hops[0][partition], 0, fetched)
            if self.has_failed:
                return
        self._since += entries

    def _bring(self, place: Place, hop: int, fetched: Iterable[Entry]) -> int:
        """Give a place the fetched entries; return how many of them were new."""
        entries = [Entry(*one) for one in place.new(fetched)]
        if entries:
            records = [entry.record for entry in entries]
            step, dead = place.process(records, carefully=self._is_careful)
            self._send(place, hop, step, dead, [entry.row for entry in entries])
        return len(entries)

    def _send(
        self, place: Place, hop: int, step: Step, dead: list[Aside], rows: Sequence[int]
    ) -> None:
        """Send the results of a place to where they go."""
        failure = self._failure(step, dead, rows)
        moving = [
            Entry(record, self._row_of(cause, rows))
            for record, cause in zip(step.forwarded.records, step.forwarded.causes, strict=True)
        ]
        spread = {}
        without_id: list[Aside] = []
        if place.spread is None:
            self._clean(place.partition, moving)
        else:
            spread, without_id = place.spread.by_partition(step.forwarded, self._world.partitions)
        self._put_aside(step.late, [*dead, *without_id, *step.dead], rows)
        self.outcome.decisions += step.decisions
        for to, part in spread.items():
            causes = [moving[at].row for at in part.places]
            self._pass_on(hop, to, list(map(Entry, part.records, causes)))
        self._tell_times(place, hop)
        if failure is not None and not self.has_failed:
            self.outcome.failure, row = failure
            self.outcome.leaves.append((row, Leaving(FAILED)))

    def _row_of(self, cause: int, rows: Sequence[int]) -> int:
        return rows[cause] if 0 <= cause < len(rows) else self._row

    def _clean(self, partition: int, entries: Iterable[Entry]) -> None:
        ends = self.outcome.ends
        for record, row in entries:
            self.outcome.leaves.append((row, leaving("", record)))
            cleaned = _written(record, self._world.spec.sink.topic, partition, ends[partition])
            ends[partition] += 1
            self.outcome.cleaned.append(Entry(cleaned, row))

    def _put_aside(self, late: list[Aside], dead: list[Aside], rows: Sequence[int]) -> None:
        for aside in late:
            row = self._row_of(aside.cause, rows)
            self.outcome.late.append(Entry(aside.record, row))
            self.outcome.leaves.append((row, leaving("late:", aside.record)))
        for aside in dead:
            row = self._row_of(aside.cause, rows)
            why = (aside.reason, aside.detail, aside.exception, aside.stacktrace)
            self.outcome.dead.append((DeadLetter(aside.record, aside.operator, *why), row))
            self.outcome.leaves.append((row, leaving("dead:", aside.record)))

    def _failure(
        self, step: Step, dead: list[Aside], rows: Sequence[int]
    ) -> tuple[str, int] | None:
        """Return why the pipeline stops, and at which row; None if it goes on."""
        if step.failure is not None:
            return step.failure.sentence, self._row_of(step.failure.cause, rows)
        failed = [aside for aside in (*dead, *step.dead) if aside.reason is Reason.FAILED]
        if not failed or self._world.spec.on_failure != "stop":
            return None
        first = min(failed, key=attrgetter("cause"))
        row = self._row_of(first.cause, rows)
        _leave_out(step, first.cause)
        return f"`{first.operator}` failed on a record ({first.detail})", row

    def _pass_on(self, hop: int, to: int, entries: list[Entry]) -> None:
        """Write to a partition of the repartition topic, and read it at once."""
        place = self._hops[hop + 1][to]
        written = []
        for record, row in entries:
            written.append(Entry(_written(record, place.hop.topic, to, len(place.log)), row))
            place.log.append(written[-1])
        self._bring(place, hop + 1, written)

    def _tell_times(self, place: Place, hop: int) -> None:
        for to, told in place.times_to_tell():
            self._pass_on(hop, to, [Entry(told, self._row)])

    def commit(self) -> None:
        """Make everything read and written so far durable."""
        if self.has_failed:
            return
        try:
            for place in self._places():
                place.commit()
        except Exception as problem:
            if self._is_careful or not is_of_a_record(problem):
                raise
            self._take_carefully(self._since)
            for place in self._places():
                place.commit()
        self._is_careful = False
        self._read += self._since
        self._since = []
        self._committed = self.outcome.copy()
        for place in self._hops[-1]:
            end = self.outcome.ends[place.partition]
            progress = place.progress(end - 1 if end else None)
            if progress is not None:
                self.progress[place.partition] = progress

    def _places(self) -> Iterable[Place]:
        return (place for places in self._hops for place in places)

    def _go_back(self) -> None:
        self.outcome = self._committed.copy()
        for place in self._places():
            place.begin_again()
            del place.log[place.position :]

    def happen(self, event: Event, row: int) -> None:
        """Let an event happen between two records."""
        if event.what == "progress":
            message = "`(progress)` is told to queries; a pipeline tells its own"
            raise ScenarioInvalid(message)
        if self.has_failed:
            return
        self._row = row
        if event.what == "crash":
            self.crash()
            return
        self.commit()
        match event.what:
            case "restart":
                for place in self._places():
                    place.begin_again()
            case "rebalance":
                for place in self._places():
                    place.move()
            case "duplicate":
                self._fetch_again(event.amount)
            case "wait" | "idle" | "clock":
                self._let_time_pass(event)
            case _:
                pass

    def crash(self) -> None:
        """Lose everything since the last commit, and read it again."""
        if self.has_failed:
            return
        again, self._since = self._since, []
        self._go_back()
        self.take(again)

    def _fetch_again(self, count: int) -> None:
        """Fetch the last records once more, at the offsets that they had."""
        known = self._read[max(0, len(self._read) - count) :]
        for partition, group in groupby(known, key=_partition_of):
            new = list(self._hops[0][partition].new(group))
            assert not new, "a record that was read is taken again"

    def _let_time_pass(self, event: Event) -> None:
        if event.what == "clock":
            self._go_on_to(event.amount)
        elif event.what == "wait":
            self._wait(event.amount)
        else:
            self._wait(max(place.longest_wait_ms() for place in self._places()))

    def _wait(self, wait_ms: int) -> None:
        """Move the clock on; every place looks at it, with no record left to read."""
        self._world.clock.now_ms += wait_ms
        for hop, places in enumerate(self._hops):
            for place in places:
                released = place.release_idle(carefully=self._is_careful)
                if released is not None:
                    self._send(place, hop, released, [], [])
                place.falls_silent()
                self._tell_times(place, hop)
        self.commit()

    def _go_on_to(self, time_ms: int) -> None:
        """Advance the source to a time of a clock that it trusts, without a record."""
        for place in self._hops[0]:
            step = place.chain.advance(time_ms, carefully=self._is_careful)
            if step is not None:
                self._send(place, 0, step, [], [])
            self._tell_times(place, 0)
        self.commit()

    def counts(self) -> Counter[str]:
        """Return what the operators have counted."""
        counted: Counter[str] = Counter()
        for place in self._places():
            counted += place.counts()
            counted["held"] += place.held
            counted["turned away"] += place.turned_away
        return counted


def _written(record: Record, topic: str, partition: int, offset: int) -> Record:
    """Return a record as it is in a topic that it was written to."""
    return record._replace(topic=topic, partition=partition, offset=offset)


def _leave_out(step: Step, cause: int) -> None:
    """Remove the results of the record that failed, and of those behind it."""
    batch = step.forwarded
    kept = [at for at, other in enumerate(batch.causes) if other < cause]
    batch.records = [batch.records[at] for at in kept]
    batch.causes = [batch.causes[at] for at in kept]
    step.late = [aside for aside in step.late if aside.cause < cause]
    step.dead = [aside for aside in step.dead if aside.cause < cause]


def _partition_of(entry: Entry) -> int:
    return entry.record.partition
