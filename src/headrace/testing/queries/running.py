"""Run a query over rows of a table: a micro-batch a record, with events between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.errors import ScenarioInvalid
from headrace.contracts.pipeline import IDLE_MS
from headrace.contracts.problem_text import listed, show
from headrace.contracts.record import NO_TIME_MS, Record, offset_of
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.streams import JoinedStream
from headrace.spark_jobs.queries.tables import Table
from headrace.spark_jobs.queries.topologies import inputs_of
from headrace.spark_jobs.queries.windows import MadeStream
from headrace.spark_jobs.shapes import DEAD, LATE
from headrace.spark_jobs.versioned.progress import ProgressRow
from headrace.spark_jobs.versioned.state import MemoryRows
from headrace.testing.queries.casts import NoAnswer
from headrace.testing.queries.job import Job, Out, Place
from headrace.testing.query_result import QueryResult
from headrace.testing.records import check_record, checked_partitions
from headrace.testing.tables import FAILED, Event, Leaving, Row, leaving, shown

_TOPIC = "rows"
_SIZE_MAX = 5
_SIDES = {LATE: "late:", DEAD: "dead:"}
Batch = tuple[list[tuple[int, Record]], list[tuple[Place, ProgressRow]]]


@dataclass
class _Reached:
    """How far a partition is."""

    offset: int | None = None
    time_ms: int = NO_TIME_MS
    heard_at_ms: int = 0


@dataclass
class _Taken:
    """A micro-batch, the state before it, and what left."""

    batch: Batch
    before: list[MemoryRows]
    row: int
    out: list[Out] = field(default_factory=list)


def play_query(
    query: Query,
    rows: Sequence[Row],
    *,
    partitions: int | None = None,
    seed: int | None = None,
) -> QueryResult:
    """Run rows, record by record; with a seed, in random micro-batches and with crashes."""
    simulation = _Simulation(query, [row.what for row in rows], partitions)
    waiting: list[tuple[Record, int]] = []
    luck = None if seed is None else Random(seed)  # noqa: S311 (a run that can be repeated)
    for number, row in enumerate(rows):
        if isinstance(row.what, Record):
            waiting.append((row.what, number))
            if luck is not None:
                continue
            simulation.take(waiting)
        else:
            simulation.take_by_luck(waiting, luck)
            simulation.happen(row.what, number)
        waiting = []
    simulation.take_by_luck(waiting, luck)
    return simulation.result(len(rows))


class _Simulation:
    def __init__(
        self, query: Query, given: Sequence[Record | Event], partitions: int | None
    ) -> None:
        checked_partitions(partitions)
        self._query = query
        self._numbers = _numbers_of(query)
        counts = Counter(dict.fromkeys(self._numbers, partitions or 1))
        for each in given:
            if isinstance(each, Record):
                self._refuse_unknown(each, partitions)
                counts[each.topic] = max(counts[each.topic], each.partition + 1)
        self._job = Job(query, counts)
        self._places = {
            Place(number, topic, partition): _Reached()
            for topic, number in self._numbers.items()
            for partition in range(counts[topic])
        }
        self._now_ms = 0
        self._taken: list[_Taken] = []
        self._committed = 0
        self._failure: tuple[str, int] | None = None

    def _refuse_unknown(self, record: Record, partitions: int | None) -> None:
        if record.topic not in self._numbers:
            known = listed([*self._numbers])
            message = f"{show(record.topic)} is no topic of this query; it reads {known}"
            raise ScenarioInvalid(message)
        check_record(record)
        if partitions is not None and record.partition >= partitions:
            message = f"a record stands in a partition that its topic has not: it has {partitions}"
            raise ScenarioInvalid(message)

    def take(self, entries: Iterable[tuple[Record, int]]) -> None:
        """Take records as one micro-batch."""
        batch: Batch = ([], [])
        row = 0
        for record, row in entries:  # noqa: B007 (the last row is kept)
            number = self._numbers[record.topic]
            batch[0].append((number, record))
            place = Place(number, record.topic, record.partition)
            reached = self._places[place]
            reached.offset = offset_of(record)
            reached.time_ms = max(reached.time_ms, record.timestamp_ms)
            reached.heard_at_ms = self._now_ms
            if self._job.tells(number):
                batch[1].append((place, ProgressRow(reached.time_ms, reached.offset)))
        self._take(batch, row)

    def take_by_luck(self, entries: Sequence[tuple[Record, int]], luck: Random | None) -> None:
        """Take records in random micro-batches, each partition in its order, with crashes."""
        left: dict[tuple[str, int], list[tuple[Record, int]]] = {}
        for entry in entries:
            left.setdefault((entry[0].topic, entry[0].partition), []).append(entry)
        while left and luck is not None:
            batch: list[tuple[Record, int]] = []
            for place in [*left]:
                size = luck.randint(0, _SIZE_MAX)
                batch += left[place][:size]
                left[place] = left[place][size:]
                if not left[place]:
                    del left[place]
            if batch:
                self.take(batch)
            if luck.random() < 1 / 3:
                self._again(self._taken[self._committed :])
                self._committed = len(self._taken)

    def _take(self, batch: Batch, row: int) -> None:
        if self._failure is not None:
            return
        taken = _Taken(batch, self._job.state(), row)
        try:
            taken.out = self._job.take(*batch)
        except NoAnswer as error:
            self._failure = f"an expression has no answer for a row: {error}", row
            return
        self._taken.append(taken)

    def happen(self, event: Event, row: int) -> None:
        """Let an event happen between two records."""
        if event.what == "crash":
            self._again(self._taken[self._committed :])
            return
        self._committed = len(self._taken)
        match event.what:
            case "commit" | "restart":
                pass
            case "duplicate":
                records = [at for at, one in enumerate(self._taken) if one.batch[0]]
                start = records[-event.amount :][:1]
                self._again(self._taken[start[0] :] if start else [])
            case "wait":
                self._wait(event.amount, row)
            case "idle":
                self._wait(IDLE_MS, row)
            case "progress":
                self._tell([ProgressRow(event.amount, None)] * len(self._places), row)
            case _:
                message = f"`({event.what})` happens to pipelines alone, and not to a query"
                raise ScenarioInvalid(message)
        self._committed = len(self._taken)

    def _again(self, batches: Sequence[_Taken]) -> None:
        """Run micro-batches again from the state before them: their rows must be the same."""
        if not batches or self._failure is not None:
            return
        self._job.go_back(batches[0].before)
        for taken in batches:
            again = self._job.take(*taken.batch)
            assert again == taken.out, f"a micro-batch gave {taken.out}, and again {again}"

    def _wait(self, wait_ms: int, row: int) -> None:
        """Move the clock on; the sidecar of a partition without records says that it is idle."""
        self._now_ms += wait_ms
        self._tell(
            [
                ProgressRow(reached.time_ms, reached.offset, reached.time_ms)
                if self._now_ms >= reached.heard_at_ms + IDLE_MS
                else None
                for reached in self._places.values()
            ],
            row,
        )

    def _tell(self, said: Sequence[ProgressRow | None], row: int) -> None:
        told = [
            (place, one._replace(cleaned_offset=reached.offset))
            for (place, reached), one in zip(self._places.items(), said, strict=True)
            if one is not None and self._job.tells(place.input)
        ]
        self._take(([], told), row)

    def result(self, rows: int) -> QueryResult:
        """Return all that has left."""
        leaves: list[list[Leaving]] = [[] for _ in range(rows)]
        found: dict[str, list[Record]] = {"": [], "late:": [], "dead:": []}
        for taken in self._taken:
            for verdict, record in taken.out:
                side = _SIDES.get(verdict, "")
                found[side].append(record)
                leaves[taken.row].append(leaving(side, record))
        if self._failure is not None:
            leaves[self._failure[1]].append(Leaving(FAILED))
        letters = [read_dead(record) for record in found["dead:"]]
        return QueryResult(
            tuple(
                record._replace(topic=_TOPIC, partition=0, offset=offset)
                for offset, record in enumerate(found[""])
            ),
            tuple(found["late:"]),
            tuple(letter for letter in letters if letter is not None),
            self._job.held,
            None if self._failure is None else self._failure[0],
            tuple(map(tuple, leaves)),
            keeps_by_time=isinstance(self._query, Table) and self._query.remembers,
        )


def _numbers_of(query: Query) -> Mapping[str, int]:
    """Return the number of each topic."""
    return {source.topic: number for number, source in enumerate(inputs_of(query).values())}


def check_any_cut(
    query: Query, rows: Sequence[Row], partitions: int | None, seeds: Iterable[int]
) -> QueryResult:
    """Check that rows do not depend on micro-batches, as far as that is promised."""
    first = play_query(query, rows, partitions=partitions)
    for seed in seeds:
        other = play_query(query, rows, partitions=partitions, seed=seed)
        assert (other.failure is None) == (first.failure is None), f"seed {seed}: {other.failure}"
        if first.failure is not None or first.late or other.late:
            continue
        if not isinstance(query, MadeStream):
            assert other.latest == first.latest, f"seed {seed}: other rows are the last ones"
        elif not isinstance(query, JoinedStream) or query.grace_ms is None:
            assert _by_key(other.rows) == _by_key(first.rows), f"seed {seed}: other rows leave"
    return first


def _by_key(records: Sequence[Record]) -> dict[bytes | None, list[str]]:
    keys = {record.key for record in records}
    return {key: shown(one for one in records if one.key == key) for key in keys}
