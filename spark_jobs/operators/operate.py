"""Apply a topology to frames of records, in as many stages as its steps need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.operators.arriving import Arriving
from headrace.spark_jobs.operators.frames import (
    InputProgress,
    Spread,
    bundled,
    process,
    record_rows,
    with_headers,
)
from headrace.spark_jobs.operators.grouped import FoldedStep, PartStep
from headrace.spark_jobs.operators.hot_keys import HotKeys, hot_keys_of
from headrace.spark_jobs.operators.packed import progress_bundles
from headrace.spark_jobs.operators.sending import Sending
from headrace.spark_jobs.operators.stages import (
    AnsweredStep,
    AnswerStep,
    AskStep,
)
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    ForeignKeyStep,
    Topology,
    above,
    inputs_of,
    verify,
    waits,
)
from headrace.spark_jobs.operators.updates import with_updates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark_jobs.operators.leaving import Leaving
    from headrace.spark_jobs.versioned.changes import Updates

_log = logging.getLogger(__name__)
OfTask = Callable[[int], Topology]
"""Returns the topology of a task; all have the same foreign-key joins and aggregations."""


def operate(
    topology: Topology,
    records: DataFrame,
    spread: Spread | None = None,
    progress: InputProgress | None = None,
    updates: Updates = "each",
) -> DataFrame:
    """Apply a topology to records; return results, late rows and counts, by `verdict`.

    A foreign-key join or an aggregation sends rows to the tasks of their keys, which takes one or
    two more stages; within one task it takes none.

    By progress, `records` must be complete, as they were read: the join waits for every record that
    progress names. Filter a table by a `FilterStep`, and a stream behind the join.

    By `updates="last"`, only the last change of a key in a micro-batch leaves a table. If a record
    fails, the others are taken in pieces, and the last one of each leaves.
    """
    return with_headers(operate_for_sinks(topology, Arriving(records), spread, progress, updates))


def operate_for_sinks(
    topology: Topology,
    arriving: Arriving,
    spread: Spread | None = None,
    progress: InputProgress | None = None,
    updates: Updates = "each",
) -> DataFrame:
    """Do as `operate`, with headers as the text that our sinks write from, or in bundles of theirs.

    Records that have not been checked are checked on their way.
    """
    spread = spread or Spread()
    verify(topology)
    topology = with_updates(topology, updates)
    _refuse_without_progress(topology, progress)
    _refuse_unlike(spread, progress)
    _say_silent(topology, progress)
    return _operate_each(lambda _task: topology, topology, arriving, spread, progress)


def operate_each(
    of_task: OfTask,
    like: Topology,
    records: DataFrame,
    spread: Spread,
    progress: InputProgress | None = None,
) -> DataFrame:
    """Do as `operate`, with a topology for each task; `like` decides which stages they need."""
    return with_headers(_operate_each(of_task, like, Arriving(records), spread, progress))


def _operate_each(
    of_task: OfTask,
    like: Topology,
    arriving: Arriving,
    spread: Spread,
    progress: InputProgress | None,
) -> DataFrame:
    options = {} if progress is None else progress.options()
    if not waits(like):
        progress = None
    cuts = _cuts(like)
    if cuts and spread.by == "partition":
        message = (
            f"`{cuts[0].name}` sends rows to the tasks where their keys live, and only a spread by"
            " key says where that is; use `Spread(by='key')`"
        )
        raise TopologyRefused(message)
    plan = _Plan(arriving, spread, progress, options, hot_keys_of(like, spread))
    return plan.run(of_task, like, sending=arriving.leaving)


class _Plan:
    def __init__(
        self,
        arriving: Arriving,
        spread: Spread,
        progress: InputProgress | None,
        options: Mapping[str, int],
        hot: HotKeys | None,
    ) -> None:
        self._arriving = arriving
        self._spread = spread
        self._progress = progress
        self._options = options
        self._hot = hot

    def run(
        self,
        of_task: OfTask,
        like: Topology,
        messages: DataFrame | None = None,
        sending: Sending | Leaving | None = None,
    ) -> DataFrame:
        """Run a topology behind all stages that it needs.

        `messages` come from the stage before it. With `sending` its results leave in bundles.
        """
        rows = [] if messages is None else [messages]
        cuts = [] if self._spread.in_one_task else _cuts(like)
        _refuse_confusable(cuts)
        if cuts:
            for number, cut in enumerate(cuts):
                of_cut = _each(of_task, partial(_cut_at, number=number))
                rows.append(self._messages(of_cut, cut, like))
            of_task, like = _each(of_task, _received), _received(like)
        inputs = inputs_of(like)
        progress = self._progress if waits(like) else None
        if progress is not None and progress.rows is not None:
            # Few rows of progress come in a micro-batch: one task reads them all.
            said = progress.rows.coalesce(1)
            rows.append(progress_bundles(said, self._spread.tasks_waiting_for))
        if inputs:
            rows.append(self._rows_of(inputs))
        return process(rows, of_task, self._spread, progress, self._options, sending)

    def _rows_of(self, inputs: set[int]) -> DataFrame:
        """Return the records of some inputs, and, where progress counts, how far they are read."""
        records = self._arriving.of(inputs)
        rows = record_rows(records, self._spread, self._hot)
        waiting = None if self._progress is None else self._spread.tasks_waiting_for
        checks = self._arriving.checks
        checks = {number: checks[number] for number in checks.keys() & inputs}
        return bundled(rows.coalesce(_readers(records.sparkSession)), waiting, self._hot, checks)

    def _messages(
        self, of_task: OfTask, cut: AggregateStep | ForeignKeyStep, like: Topology
    ) -> DataFrame:
        """Run the stages before a step; return bundles of the messages that they send to it."""
        sending = Sending(self._spread, "arrival" in self._arriving.records.columns)
        if isinstance(cut, AggregateStep):
            part_step = partial(PartStep.of, is_end=cut is like)
            return self.run(_each(of_task, part_step), part_step(cut), sending=sending)
        asks = self.run(_each(of_task, _ask_step), _ask_step(cut), sending=sending)
        return self.run(_each(of_task, _answer_step), _answer_step(cut), asks, sending)


def _readers(spark: SparkSession) -> int:
    """Return how many tasks read: no more than work at a time, for each costs what it costs.

    A topic's partitions would be a task each, in every micro-batch, however few records they have.
    """
    shuffles = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(shuffles, spark.sparkContext.defaultParallelism)


def _cuts(topology: Any) -> list[Any]:
    """Return the steps nearest to the end whose rows come from other tasks."""
    if isinstance(topology, AggregateStep | ForeignKeyStep):
        return [topology]
    return [cut for name in above(topology) for cut in _cuts(getattr(topology, name))]


def _refuse_confusable(cuts: list[Any]) -> None:
    """Refuse two steps side by side that receive one kind of row: a row names no step."""
    for cut, other in combinations(cuts, 2):
        if type(cut) is type(other):
            message = (
                f"`{cut.name}` and `{other.name}` stand side by side and take rows from other"
                " tasks, which look alike; write one of them to a topic by a job of its"
                " own, or keep all keys in one task with `Spread(tasks=1)`"
            )
            raise TopologyRefused(message)


def _cut_at(topology: Any, number: int) -> Any:
    return _cuts(topology)[number]


def _received(topology: Any) -> Any:
    """Return the topology in which those steps receive the messages of other tasks."""
    if isinstance(topology, ForeignKeyStep):
        return AnsweredStep(topology.name, topology, updates=topology.updates)
    if isinstance(topology, AggregateStep):
        return FoldedStep(topology.name, topology, updates=topology.updates)
    return replace(topology, **{n: _received(getattr(topology, n)) for n in above(topology)})


def _ask_step(cut: Any) -> AskStep:
    return AskStep(cut.name, cut.left, cut)


def _answer_step(cut: Any) -> AnswerStep:
    return AnswerStep(cut.name, cut.right, cut.updates)


def _each(of_task: OfTask, change: Callable[[Any], Any]) -> OfTask:
    return lambda task: change(of_task(task))


def _refuse_without_progress(topology: Topology, progress: InputProgress | None) -> None:
    """Refuse a join that waits for the progress of an input that has none."""
    if waits(topology):
        without = inputs_of(topology)
        if progress is not None:
            without -= progress.partitions.keys()
        if without:
            numbers = ", ".join(str(number) for number in sorted(without))
            message = (
                f"`{topology.name}` releases by progress, and nothing says how far input {numbers}"
                " is; read its progress too, or release by stream time"
            )
            raise TopologyRefused(message)


def _say_silent(topology: Topology, progress: InputProgress | None) -> None:
    """Warn of inputs without a pipeline, whose progress is only guessed."""
    if progress is None or not waits(topology):
        return
    for number, partitions in sorted(progress.partitions.items()):
        if not partitions:
            _log.warning(
                "`%s` releases by progress, and its input `%s` has no `pipeline` that says it: the"
                " highest time in it is taken for its progress, what comes behind that is late, and"
                " while it is empty nothing leaves",
                topology.name,
                progress.topics.get(number, number),
            )


def _refuse_unlike(spread: Spread, progress: InputProgress | None) -> None:
    """Refuse tasks by partition if equal keys are not in equal partitions."""
    counts = (
        {} if progress is None else {n: count for n, count in progress.partitions.items() if count}
    )
    if spread.by == "partition" and len(set(counts.values())) > 1:
        said = ", ".join(f"input {number} has {count}" for number, count in sorted(counts.items()))
        message = (
            f"tasks are to be partitions, but {said} partitions, so equal keys do not meet;"
            " use `Spread(by='key')`"
        )
        raise TopologyRefused(message)
