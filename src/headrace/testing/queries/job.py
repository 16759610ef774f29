"""One query over records: decoded, taken by Spark's own processor in one task, and written.

The processor, its topology and its state are those that run in Spark. Reading JSON, expressions and
frames between them are written again here, since Spark's own are Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.contracts.correction import CORRECTED_HEADER
from headrace.contracts.dead_letter import INTAKE, DeadLetter, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.errors import SparkNeeded
from headrace.contracts.record import Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.columns import NO_INPUT, PROGRESS, RECORD
from headrace.spark_jobs.operators.positions import position_row
from headrace.spark_jobs.operators.topology import Topology, waits
from headrace.spark_jobs.queries.compiled import KEY_HEADER
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.refused import refuse_alone
from headrace.spark_jobs.queries.streams import JoinedStream, PairedStream, Stream
from headrace.spark_jobs.queries.tables import Table
from headrace.spark_jobs.queries.topologies import (
    RECORDS,
    STREAM,
    TABLE,
    Plan,
    inputs_of,
)
from headrace.spark_jobs.queries.types import refuse_unlike, type_of
from headrace.spark_jobs.queries.windows import MadeStream, WindowedStream
from headrace.spark_jobs.shapes import (
    CHANGED,
    COLD,
    CORRECTED,
    COUNT,
    DEAD,
    JOINED,
    LATE,
    LOWEST,
    PASSED,
)
from headrace.spark_jobs.versioned.progress import Expected, ProgressRow, pack_progress
from headrace.spark_jobs.versioned.state import MemoryRows
from headrace.testing.queries.json_values import Unreadable, read
from headrace.testing.queries.kinds import STRING, TIMESTAMP, struct_of
from headrace.testing.queries.rows import Seen
from headrace.testing.queries.stages import TASK, Stage

_ROWS = (JOINED, CORRECTED, CHANGED)
Parts = Mapping[str, bytes | None]


class Place(NamedTuple):
    """A partition of an input."""

    input: int
    topic: str
    partition: int


class Out(NamedTuple):
    """A record that leaves."""

    verdict: str
    record: Record


class Job:
    """A query over all keys, in one task."""

    def __init__(self, query: Query, partitions: Mapping[str, int]) -> None:
        """Compile the query; `partitions` are those of each topic.

        SparkNeeded names what only Spark evaluates.
        """
        refuse_alone(query)
        self.sources = inputs_of(query)
        self.names = list(self.sources)
        self._query = query
        self._schemas = {name: struct_of(source) for name, source in self.sources.items()}
        bare = Plan(query, self.sources, self._schemas, {})
        self._tables = {
            name: Seen().decoded("value", schema).stepped(bare.reader_of(name).steps)
            for name, schema in self._schemas.items()
            if name != STREAM
        }
        self._plan = replace(bare, tables={name: one.schema for name, one in self._tables.items()})
        self._columns = self._plan.meets_by()
        self._keys = {name: self._seen_keys(name) for name in self._columns}
        kinds = [
            type_of(seen.schema, self._columns[name], self._plan.join)
            for name, seen in self._keys.items()
        ]
        refuse_unlike(kinds, list(self._columns.values()))
        self._made = self._seen_made()
        self._folded = self._folding()
        self._seen = self._seen_rows()
        topologies = self._topologies()
        self._by_progress = waits(topologies[0])
        expected = Expected()
        if self._by_progress:
            topics = {n: source.topic for n, source in enumerate(self.sources.values())}
            counts = {n: partitions[topic] if self.tells(n) else 0 for n, topic in topics.items()}
            expected = Expected(counts, topics)
        # Behind a join, its one task says how far it is.
        of_each = [expected, Expected({TASK: 0})]
        self._stages = [Stage(*each) for each in zip(topologies, of_each, strict=False)]
        self._held = [0] * len(self._stages)

    @property
    def held(self) -> int:
        """How many records wait, for progress or for the end of their window."""
        return sum(self._held)

    def tells(self, number: int) -> bool:
        """Return whether a sidecar tells the progress of an input."""
        return self.sources[self.names[number]].pipeline is not None

    def state(self) -> list[MemoryRows]:
        """Return a copy of the state of each stage."""
        return [stage.state() for stage in self._stages]

    def go_back(self, states: Sequence[MemoryRows]) -> None:
        """Go on from an earlier state."""
        for stage, state in zip(self._stages, states, strict=True):
            stage.go_back(state)

    def _topologies(self) -> list[Topology]:
        if self._folded is None:
            return [self._plan.topology()]
        step = self._plan.windows(self._folded.schema).step
        return [self._plan.topology(), step] if self._plan.folds_join else [step]

    def _seen_keys(self, name: str) -> Seen:
        """Return the columns of an input, behind its steps, by one of which it meets others."""
        if name != STREAM:
            return self._tables[name]
        steps = self._plan.reader_of(name).steps
        return Seen().decoded("value", self._schemas[name]).stepped(steps)

    def _seen_made(self) -> Seen:
        """Return the columns of the query's rows, or of those that it folds by window."""
        query = self._plan.made
        if isinstance(query, JoinedStream):
            seen = Seen().decoded("value", self._schemas[STREAM]).stepped(query.stream.steps)
            return seen.decoded("table_value", *self._plan.met(seen.kinds)).stepped(query.steps)
        if isinstance(query, PairedStream):
            return Seen().decoded("value", *self._plan.pair()).stepped(query.steps)
        if isinstance(query, Stream):
            return self._tables[RECORDS]
        encoded = self._plan.encoded(query)
        seen = Seen().decoded("value", encoded.schema, encoded.columns)
        if isinstance(query, Table):
            # The table's steps already ran on its records.
            return replace(seen, kinds=self._tables[TABLE].kinds)
        return seen.stepped(query.steps)

    def _folding(self) -> Seen | None:
        """Return the columns by which rows are folded by window, None if they are not."""
        query = self._query
        if not isinstance(query, WindowedStream):
            return None
        own = {"key": STRING, "time": TIMESTAMP}
        taken = {name: kind for name, kind in own.items() if name in query.own_taken}
        return replace(self._made, kinds={**self._made.kinds, **taken})

    def _seen_rows(self) -> Seen:
        if self._folded is None:
            return self._made
        encoded = self._plan.windows(self._folded.schema)
        seen = Seen().decoded("value", encoded.schema, encoded.columns)
        return seen.stepped(self._query.steps)

    def take(
        self, records: Sequence[tuple[int, Record]], told: Iterable[tuple[Place, ProgressRow]] = ()
    ) -> list[Out]:
        """Take the records of a micro-batch, and progress; return what leaves, in order.

        NoAnswer says which expression has no answer; nothing goes on behind it.
        """
        return list(self._take(records, told))

    def _take(
        self, records: Sequence[tuple[int, Record]], told: Iterable[tuple[Place, ProgressRow]]
    ) -> Iterator[Out]:
        rows = [self._record_row(number, record) for number, record in records]
        if self._by_progress:
            rows += self._reached_rows(rows)
        rows += [_progress_row(place, one) for place, one in told]
        for number, stage in enumerate(self._stages):
            is_last = number + 1 == len(self._stages)
            taken, rows = rows, []
            for result in stage.take(taken):
                if result["verdict"] == LOWEST:
                    self._held[number] = result["added"]
                elif result["verdict"] in {JOINED, PASSED} and not is_last:
                    rows += self._row_behind(result)
                else:
                    yield from self._left(result)

    def _row_behind(self, result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the row that the windows get of a result of the join before them."""
        if result["verdict"] == PASSED:
            yield position_row((TASK, "", 0), 0, result["timestamp_ms"], TASK)
            return
        assert self._folded is not None
        record = _record_of(result)
        parts = {"value": record.value, "table_value": result["table_value"]}
        value = _written(self._folded, record, parts)
        if value is not None:
            row = {"task": TASK, "kind": RECORD, "input": 0, "lane": TASK}
            own = record._replace(value=value, headers=())._asdict()
            yield {**own, **row, "place": result["sequence"], "headers": None}

    def _record_row(self, number: int, record: Record) -> dict[str, Any]:
        name = self.names[number]
        row: dict[str, Any] = {"task": TASK, "kind": RECORD, "input": number}
        row |= {"lane": record.partition, "place": record.offset, **record._asdict()}
        problem = self._problem(name, record)
        if problem is not None:
            reason, detail = problem
            letter = DeadLetter(record, INTAKE, reason, detail)
            row["headers"] = encode_headers(dead_headers(letter))
            row["aside"] = json.dumps({"verdict": DEAD, "reason": reason.value})
            return row
        headers = record.headers
        if name in self._keys:
            seen = self._keys[name]
            found = seen.run(record, {"value": record.value})
            row["key"] = None if found is None else seen.key_of(found, self._columns[name])
            headers = (*headers, (KEY_HEADER, record.key))
        if name == RECORDS and self._folded is not None:
            row["value"] = _written(self._folded, record, {"value": record.value})
        elif name != STREAM and self._plan.is_rewritten(name):
            row["value"] = _written(self._tables[name], record, {"value": record.value})
        row["headers"] = encode_headers(headers)
        return row

    def _problem(self, name: str, record: Record) -> tuple[Reason, str] | None:
        """Return why a record is dead, None if it can be read."""
        if record.key is None:
            return Reason.NULL_KEY, "the key is null"
        if record.value is None:
            return None
        schema = self._schemas[name]
        try:
            found = read(record.value, schema)
        except Unreadable:
            return Reason.UNDECODABLE, "the value cannot be read as the schema says"
        for field in schema.fields:
            if not field.nullable and found[field.name] is None:
                detail = f"the field `{field.name}` is missing, null, or of another type"
                return Reason.UNDECODABLE, detail
        return None

    def _reached_rows(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return how far each partition is read, behind its records."""
        last: dict[tuple[int, str, int], tuple[int, int]] = {}
        for row in rows:
            place = row["input"], row["topic"], row["partition"]
            time_ms = row["timestamp_ms"] if row.get("aside") is None else -1
            before = last.get(place, (row["offset"], time_ms))
            last[place] = max(row["offset"], before[0]), max(time_ms, before[1])
        return [position_row(place, *reached, TASK) for place, reached in last.items()]

    def _left(self, result: Mapping[str, Any]) -> Iterator[Out]:
        verdict = result["verdict"]
        if verdict == COUNT:
            is_balance = str(result["reason"]).endswith(":balance")
            lost = result["number"] if is_balance else 0
            assert not lost, f"records were lost or invented: {result['reason']} is {lost}"
            return
        if verdict == COLD:
            message = "a record is older than its table remembers, and `history` is Spark's alone"
            raise SparkNeeded(message)
        if verdict not in {*_ROWS, LATE, DEAD}:
            return
        record = _record_of(result)
        if verdict not in _ROWS:
            yield Out(verdict, record)
            return
        parts = {"value": record.value, "table_value": result["table_value"]}
        value = _written(self._seen, record, parts)
        if value is None and isinstance(self._query, MadeStream):
            return
        if verdict == CORRECTED:
            record = record._replace(headers=(*record.headers, CORRECTED_HEADER))
        yield Out(verdict, record._replace(value=value))


def _written(seen: Seen, record: Record, parts: Parts) -> bytes | None:
    row = seen.run(record, parts)
    return None if row is None else seen.written(row)


def _record_of(result: Mapping[str, Any]) -> Record:
    """Return the record of a result; one that looked up by a column gets its own key again."""
    headers = () if result["headers"] is None else decode_headers(result["headers"])
    key = result["key"]
    own = [value for name, value in headers if name == KEY_HEADER]
    if own:
        key = own[-1]
        headers = tuple(one for one in headers if one[0] != KEY_HEADER)
    return Record(
        key,
        result["value"],
        result["timestamp_ms"],
        headers,
        result["topic"],
        result["partition"],
        result["offset"],
    )


def _progress_row(place: Place, told: ProgressRow) -> dict[str, Any]:
    row = dict.fromkeys(("offset", "timestamp_ms"), -1)
    return row | {
        "task": TASK,
        "kind": PROGRESS,
        "input": NO_INPUT,
        "lane": place.partition,
        "place": 0,
        "topic": place.topic,
        "partition": place.partition,
        "value": pack_progress([told]),
    }
