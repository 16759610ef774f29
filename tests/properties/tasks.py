"""A topology in several tasks, as Spark runs it: rows go to the task of their key, between stages.

The processor, its topology and its state are those of production. The frames between them are
written again here, as `operators/operate.py` and `operators/behind.py` have Spark make them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.bundles import ROWS_SCHEMA
from headrace.spark_jobs.operators.columns import (
    ANSWER,
    ASK,
    COPY,
    NO_INPUT,
    PART,
    PROGRESS,
    RECORD,
    ROW,
)
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.grouped import PART_SENT, FoldedStep, PartStep
from headrace.spark_jobs.operators.positions import position_row
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.stages import (
    ANSWER_SENT,
    ASK_SENT,
    ROW_SENT,
    AnsweredStep,
    AnswerStep,
    AskStep,
)
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    ForeignKeyStep,
    LookUp,
    Topology,
    WindowStep,
    inputs_of,
    waits,
)
from headrace.spark_jobs.shapes import COUNT, JOINED, PASSED
from headrace.spark_jobs.versioned.layout import decode_numbers
from headrace.spark_jobs.versioned.moving import Groups, StoredRow, moved
from headrace.spark_jobs.versioned.progress import ProgressRow, pack_progress
from headrace.spark_jobs.versioned.spread import task_of
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows
from headrace.spark_jobs.versioned.table_rows import bytes_number, rows_number, tables_in

BUCKETS = 3
_SENT = {
    ROW_SENT: ROW,
    ASK_SENT: ASK,
    ANSWER_SENT: ANSWER,
    PART_SENT: PART,
}
_ENDS = {*_SENT, JOINED, PASSED}
_COLUMNS = [column.split()[0] for column in ROWS_SCHEMA.split(", ")]
Rows = list[dict[str, Any]]


class Told(NamedTuple):
    """How far an input is: no earlier record comes behind its records so far."""

    input: int
    progress_ms: int


class Operator:
    """One stage: its topology, and the state of each of its tasks."""

    def __init__(
        self,
        topology: Topology,
        progress: InputProgress | None,
        tasks: int,
        hot_keys: frozenset[bytes] = frozenset(),
    ) -> None:
        self.topology = topology
        self._progress = progress
        self._hot_keys = hot_keys
        self.inputs = inputs_of(topology)
        self.is_behind = isinstance(topology, WindowStep) and topology.is_behind
        self.state: dict[int, MemoryRows] = {}
        self._open(tasks)

    def _open(self, tasks: int) -> None:
        spread = Spread(tasks=tasks, buckets=BUCKETS, hot_keys=self._hot_keys)
        progress = self._progress or InputProgress()
        options = {**spread.options(), **progress.options()}
        if self.is_behind:
            progress = InputProgress(partitions=dict.fromkeys(range(tasks), 0))
        elif not waits(self.topology):
            progress = InputProgress()
        expected = progress.expected(spread)
        self._processor = TaskProcessor(
            lambda _task: self.topology, expected, {}, options, BUCKETS, stops=False
        )

    def take(self, rows: Rows) -> Rows:
        """Take the rows of a micro-batch; return the results of all tasks."""
        of_tasks: dict[int, Rows] = defaultdict(list)
        for row in rows:
            of_tasks[row["task"]].append(row)
        results: Rows = []
        for task, own in sorted(of_tasks.items()):
            self._processor.rows = self.state.setdefault(task, MemoryRows())
            frame = pd.DataFrame({name: [row.get(name) for row in own] for name in _COLUMNS})
            frame = frame.astype(dict.fromkeys(("key", "value", "headers", "aside"), object))
            for found in self._processor.handleInputRows((task,), iter([frame]), None):
                results += pa.Table.from_pandas(found, preserve_index=False).to_pylist()
        lost = [row for row in results if str(row["reason"]).endswith(":balance") and row["number"]]
        assert not [row["reason"] for row in lost if row["verdict"] == COUNT]
        for rows_of_task in self.state.values():
            check_tables(rows_of_task)
        return results

    def move(self, tasks: int) -> None:
        """Move the state into so many tasks."""
        self.state = moved_state(self.state, tasks)
        for rows in self.state.values():
            check_tables(rows)
        self._open(tasks)

    def totals(self) -> dict[str, int]:
        """Return the sum of each number over all tasks."""
        totals: dict[str, int] = defaultdict(int)
        for rows in self.state.values():
            for name, number in decode_numbers(rows[HEADER]).items():
                totals[name] += number
        return totals


def moved_state(state: Mapping[int, Mapping[str, bytes]], tasks: int) -> dict[int, MemoryRows]:
    """Move the rows of an operator, as they are when nothing else is known of them."""
    headers = {task: rows[HEADER] for task, rows in state.items()}
    others = [
        StoredRow(task, name, row)
        for task, rows in state.items()
        for name, row in rows.items()
        if name != HEADER
    ]
    found: dict[int, MemoryRows] = defaultdict(MemoryRows)
    groups = Groups.of(headers.values())
    others.sort(key=lambda one: groups.group_of(one.name))
    for task, name, row in moved(headers, others, tasks):
        assert name not in found[task]
        found[task][name] = row
    return dict(found)


def check_tables(rows: MemoryRows) -> None:
    """Check that a task has the rows and bytes that its tables note."""
    numbers = decode_numbers(rows[HEADER])
    for table in tables_in(numbers):
        own = {name: row for name, row in rows.items() if name.rpartition("/")[0] == table}
        assert sum(map(len, own.values())) == numbers[bytes_number(table)]
        places = [int(name.rpartition("/")[2]) for name in own]
        count = numbers.get(rows_number(table), numbers["buckets"])
        assert max(places, default=0) < count


class Query:
    """A topology with all stages that it needs in so many tasks."""

    def __init__(
        self,
        topology: Topology,
        tasks: int,
        topics: Mapping[int, str],
        behind: tuple[WindowStep, Callable[[Record, bytes | None], Record]] | None = None,
        hot_keys: frozenset[bytes] = frozenset(),
    ) -> None:
        """Take, as `behind`, windows over the rows of a join, and how a row of it is made."""
        self._hot_keys = hot_keys
        counts = dict.fromkeys(topics, 1)
        progress = InputProgress(partitions=counts, topics=topics)
        self.tasks = tasks
        self._topics = topics
        stages = stages_of(topology)
        self.operators = [Operator(one, progress, tasks, hot_keys) for one, _ in stages]
        self._hears = [hears for _, hears in stages]
        self._made = None
        if behind is not None:
            windows, self._made = behind
            self.operators.append(Operator(windows, None, tasks, hot_keys))
            self._hears.append([len(stages) - 1])
        self.waits = waits(topology)

    def take(self, records: Sequence[tuple[int, Record]], told: Iterable[Told] = ()) -> Rows:
        """Take a micro-batch; return all that leaves."""
        left: list[Rows] = []
        for operator, hears in zip(self.operators, self._hears, strict=True):
            handed_on: Rows = []
            heard: Rows = []
            for number in hears:
                for row in left[number]:
                    passes = row["verdict"] == ROW_SENT and self._asks(number)
                    (handed_on if passes else heard).append(row)
            if operator.is_behind:
                rows = self._behind(heard)
            else:
                sent = [self._sent(row) for row in heard]
                rows = [row for row in sent if row is not None]
                rows += self._read(operator, records, told)
            left.append(handed_on + operator.take(rows))
        passed = [row for each in left[:-1] for row in each if row["verdict"] not in _ENDS]
        return passed + left[-1]

    def _asks(self, number: int) -> bool:
        """Whether the rows of a stage are for the one behind the next."""
        return isinstance(self.operators[number].topology, AskStep)

    def move(self, tasks: int) -> None:
        """Move the state of all operators."""
        for operator in self.operators:
            operator.move(tasks)
        self.tasks = tasks

    def _read(
        self, operator: Operator, records: Sequence[tuple[int, Record]], told: Iterable[Told]
    ) -> Rows:
        rows = [
            {
                "task": task,
                "kind": kind,
                "input": number,
                "lane": record.partition,
                "place": record.offset,
                **record._asdict(),
                "headers": None,
            }
            for number, record in records
            if number in operator.inputs
            for task, kind in self._tasks_of(operator, number, record).items()
        ]
        if not self.waits:
            return rows
        last: dict[int, int] = {}
        for number, record in records:
            assert record.offset is not None
            last[number] = max(record.offset, last.get(number, -1))
        for task in range(self.tasks):
            for number, offset in last.items():
                place = number, self._topics[number], 0
                rows.append(position_row(place, offset, 0, task))
            rows += [self._progress_row(one, task) for one in told if one.input in self._topics]
        return rows

    def _tasks_of(self, operator: Operator, number: int, record: Record) -> dict[int, int]:
        """Return the tasks that get a record, and as what."""
        own = task_of(record.key, record.partition, self.tasks)
        if record.key not in self._hot_keys:
            return {own: RECORD}
        assert isinstance(operator.topology, LookUp)
        if number == operator.topology.stream:
            assert record.offset is not None
            return {record.offset % self.tasks: RECORD}
        return {task: RECORD if task == own else COPY for task in range(self.tasks)}

    def _progress_row(self, told: Told, task: int) -> dict[str, Any]:
        value = pack_progress([ProgressRow(told.progress_ms, None)])
        row = {"task": task, "kind": PROGRESS, "input": NO_INPUT, "lane": 0, "place": 0}
        topic = self._topics[told.input]
        return {**row, "topic": topic, "partition": 0, "offset": -1, "timestamp_ms": -1} | {
            "value": value
        }

    def _sent(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row that the next stage gets of a result, None for one that passes through."""
        if row["verdict"] not in _SENT:
            return None
        own = {"task": task_of(row["key"], row["partition"], self.tasks), "input": NO_INPUT}
        own |= {"kind": _SENT[row["verdict"]], "lane": row["task"], "place": row["sequence"]}
        return {**row, **own}

    def _behind(self, results: Rows) -> Rows:
        rows: Rows = []
        for row in results:
            if row["verdict"] == PASSED:
                rows += [
                    position_row((row["task"], "", 0), 0, row["timestamp_ms"], task)
                    for task in range(self.tasks)
                ]
            elif row["verdict"] == JOINED:
                assert self._made is not None
                record = self._made(record_of(row), row["table_value"])
                own = {"task": task_of(record.key, 0, self.tasks), "kind": RECORD, "input": 0}
                own |= {"lane": row["task"], "place": row["sequence"]}
                rows.append({**record._asdict(), **own, "headers": None})
        return rows


def stages_of(topology: Topology) -> list[tuple[Topology, list[int]]]:
    """Return the stages of a topology whose rows meet in other tasks, else itself.

    Beside each stage stand the numbers of those whose messages it gets.
    """
    if isinstance(topology, ForeignKeyStep):
        name = topology.name
        stages: list[tuple[Topology, list[int]]] = [(AskStep(name, topology.left, topology), [])]
        right, hears = topology.right, [0]
        if isinstance(right, ForeignKeyStep):
            above = [(one, [n + 1 for n in heard]) for one, heard in stages_of(right)]
            stages += above[:-1]
            right, hears = (
                AnsweredStep(right.name, right, updates=right.updates),
                [0, *above[-1][1]],
            )
        stages.append((AnswerStep(name, right, topology.updates), hears))
        return [
            *stages,
            (AnsweredStep(name, topology, updates=topology.updates), [len(stages) - 1]),
        ]
    if isinstance(topology, AggregateStep):
        name = topology.name
        return [
            (PartStep.of(topology, is_end=True), []),
            (FoldedStep(name, topology, updates=topology.updates), [0]),
        ]
    return [(topology, [])]


def record_of(row: Mapping[str, Any]) -> Record:
    """Return the record of a result."""
    fields = (row["key"], row["value"], row["timestamp_ms"], (), row["topic"], row["partition"])
    return Record(*fields, row["offset"])
