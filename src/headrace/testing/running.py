"""Run a pipeline over records and return the results, without broker, Java or Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast, overload

from headrace.contracts.dead_letter import DeadLetter
from headrace.contracts.decision import Decision
from headrace.contracts.errors import PipelineInvalid, ScenarioInvalid
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.problem_text import show
from headrace.contracts.progress import Progress
from headrace.contracts.record import Record
from headrace.extras import load
from headrace.pipeline import Pipeline
from headrace.services.cli.pipeline_file import load_pipeline, parse_pipeline
from headrace.spark_jobs.queries.described import Query
from headrace.testing.places import Clock, World
from headrace.testing.query_result import QueryResult
from headrace.testing.records import (
    check_happens,
    check_record,
    checked_partitions,
    read_record,
)
from headrace.testing.simulation import Entry, Simulation
from headrace.testing.tables import Event, Leaving, Row, Topics, only_topic, read_table

AnyPipeline = Pipeline | PipelineSpec | Path | str
"""A pipeline in Python, or the path of a file, or its text."""
Input = Record | Event | Row | Mapping[str, Any]
_BATCH_MAX = 7


@dataclass(frozen=True)
class Result:
    """The results of a run."""

    cleaned: tuple[Record, ...]
    """The records in the cleaned topic, in the order in which they left."""
    late: tuple[Record, ...]
    """The records in the late topic."""
    dead: tuple[DeadLetter, ...]
    """The records in the dead-letter topic, with their reasons."""
    progress: Mapping[int, Progress]
    """The last progress for readers of the cleaned topic, by partition."""
    failure: str | None
    """Why the pipeline stopped before the last record; None if it did not."""
    counts: Mapping[str, int]
    """taken, held, merged, emitted, turned away, and `dropped REASON`, over all operators."""
    leaves: tuple[tuple[Leaving, ...], ...]
    """The records that left because of each row, in order."""
    explain: Callable[[], tuple[Decision, ...]] = field(repr=False, compare=False)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Each operator's decision, with its evidence; this runs the pipeline again, explained."""
        return self.explain()


@overload
def run(
    pipeline: Query,
    records: str | Iterable[Input],
    *,
    partitions: int | None = None,
    seed: int | None = None,
) -> QueryResult: ...
@overload
def run(
    pipeline: AnyPipeline,
    records: str | Iterable[Input],
    *,
    partitions: int | None = None,
    seed: int | None = None,
) -> Result: ...
def run(
    pipeline: AnyPipeline | Query,
    records: str | Iterable[Input],
    *,
    partitions: int | None = None,
    seed: int | None = None,
) -> Result | QueryResult:
    """Run records through a pipeline or a query, one by one.

    `records` is a table, or records in Python with events between. `partitions` is how many each
    topic has; by default, as many as the records name. With a `seed` the run reads the partitions
    in a random order, in batches, with commits, crashes and other instances that take over; the
    results must be the same.
    """
    if isinstance(pipeline, Query):
        rows = rows_of(records, topics_of(pipeline))
        return play_query(pipeline, rows, partitions=partitions, seed=seed)
    spec = spec_of(pipeline)
    return play(spec, rows_of(records, spec.source.topic), partitions=partitions, seed=seed)


def spec_of(pipeline: AnyPipeline) -> PipelineSpec:
    """Return the spec of a pipeline in any form, after its functions were found."""
    match pipeline:
        case Pipeline():
            return pipeline.checked()
        case PipelineSpec():
            return pipeline
        case str() if "\n" in pipeline or ": " in pipeline:
            return parse_pipeline(pipeline, "pipeline")
        case str() | Path():
            return load_pipeline(Path(pipeline))
        case _:
            message = (
                f"{show(pipeline)} is no pipeline; pass one in Python, the path of its file, or its"
                " text"
            )
            raise PipelineInvalid(message)


def load_query(name: str | Path, folder: Path = Path()) -> Query:
    """Load the query of a job's file, in YAML or Python, or `module:name` of one in Python."""
    target = "headrace.testing.queries.loading:load_query"
    load_it = load(target, extra="spark", needed_for="a test of a query")
    return cast("Query", load_it(name, folder))


def topics_of(query: Query) -> tuple[str, ...]:
    """Return the topics that a query reads."""
    return tuple(source.topic for source in query.sources)


def play_query(
    query: Query,
    rows: Sequence[Row],
    *,
    partitions: int | None = None,
    seed: int | None = None,
) -> QueryResult:
    """Run the rows of a query, with what the extra `spark` brings, but without Spark's Java."""
    target = "headrace.testing.queries.running:play_query"
    play_it = load(target, extra="spark", needed_for="a test of a query")
    return cast("QueryResult", play_it(query, rows, partitions=partitions, seed=seed))


def rows_of(records: str | Iterable[Input], topic: Topics) -> list[Row]:
    """Turn the input of a run into rows."""
    if isinstance(records, str):
        return read_table(records, topic=topic)
    if not isinstance(records, Iterable):
        message = f"{show(records)} is no table, and no list of records; write one of the two"
        raise ScenarioInvalid(message)
    ends: dict[tuple[str, int], int] = {}
    only = only_topic(topic)
    return [_row(one, only, ends) for one in records]


def _row(one: Input, topic: str | None, ends: dict[tuple[str, int], int]) -> Row:
    if isinstance(one, Row):
        return one
    if isinstance(one, Event):
        check_happens(one)
        return Row(one)
    record = one if isinstance(one, Record) else read_record(one, topic)
    place = record.topic, record.partition
    if record.offset is None:
        record = record._replace(offset=ends.get(place, 0))
    ends[place] = (record.offset or 0) + 1
    return Row(record)


def play(
    spec: PipelineSpec,
    rows: Sequence[Row],
    *,
    partitions: int | None = None,
    seed: int | None = None,
    has_intake: bool = True,
    at_once: bool = False,
) -> Result:
    """Run rows: without intake only through the operators, at once in the largest batches."""
    checked_partitions(partitions)
    found = [row.what for row in rows if isinstance(row.what, Record)]
    for record in found:
        check_record(record)
    by_clock = any(isinstance(row.what, Event) and row.what.what == "clock" for row in rows)
    if by_clock and has_intake and spec.source.max_delay_ms is None:
        message = (
            "`(clock)` moves time only where the source has `max-delay`, and this one has none; add"
            " it, or let the clock on the wall move on by `(wait 30s)`"
        )
        raise ScenarioInvalid(message)
    count = partitions or max([record.partition for record in found], default=0) + 1
    if any(record.partition >= count for record in found):
        message = f"a record stands in a partition that the source has not: it has {count}"
        raise ScenarioInvalid(message)

    def simulate(*, explain: bool) -> Simulation:
        clock = Clock()
        clock.now_ms = max(0, found[0].timestamp_ms) if found else 0
        simulation = Simulation(World(spec, count, clock, explain, has_intake))
        luck = None if seed is None else Random(seed)  # noqa: S311 (a run that can be repeated)
        _lead(simulation, rows, luck, at_once=at_once)
        return simulation

    def explain() -> tuple[Decision, ...]:
        return tuple(simulate(explain=True).outcome.decisions)

    return _result(simulate(explain=False), len(rows), explain)


def _lead(
    simulation: Simulation, rows: Sequence[Row], luck: Random | None, *, at_once: bool
) -> None:
    waiting: list[Entry] = []
    for index, row in enumerate(rows):
        if isinstance(row.what, Record):
            waiting.append(Entry(row.what, index))
            if luck is not None or at_once:
                continue
            simulation.take(waiting)
        else:
            _lead_by_luck(simulation, waiting, luck)
            simulation.happen(row.what, index)
        waiting = []
    _lead_by_luck(simulation, waiting, luck)
    simulation.commit()


def _lead_by_luck(simulation: Simulation, waiting: list[Entry], luck: Random | None) -> None:
    """Take the waiting records in pieces of a partition; it commits, crashes and moves between."""
    if luck is None:
        simulation.take(waiting)
        return
    left: dict[int, list[Entry]] = {}
    for entry in waiting:
        left.setdefault(entry.record.partition, []).append(entry)
    while left:
        partition = luck.choice(sorted(left))
        size = luck.randint(1, _BATCH_MAX)
        simulation.take(left[partition][:size])
        left[partition] = left[partition][size:]
        if not left[partition]:
            del left[partition]
        then = luck.choice(("go on", "go on", "commit", "crash", "rebalance"))
        if then == "commit":
            simulation.commit()
        elif then == "crash":
            simulation.crash()
        elif then == "rebalance":
            simulation.happen(Event("rebalance"), waiting[-1].row)


def _result(
    simulation: Simulation, rows: int, explain: Callable[[], tuple[Decision, ...]]
) -> Result:
    outcome = simulation.outcome
    by_row: list[list[Leaving]] = [[] for _ in range(rows)]
    for row, leaves in outcome.leaves:
        by_row[row].append(leaves)
    counts = Counter({"taken": outcome.taken}) + simulation.counts()
    return Result(
        tuple(entry.record for entry in outcome.cleaned),
        tuple(entry.record for entry in outcome.late),
        tuple(letter for letter, _ in outcome.dead),
        dict(simulation.progress),
        outcome.failure,
        counts,
        tuple(map(tuple, by_row)),
        explain,
    )
