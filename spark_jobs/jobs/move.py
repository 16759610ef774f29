"""Move a checkpoint's state into another number of tasks, in a new checkpoint."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import SettingsInvalid, StateOfOtherOptions, StateUnavailable
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.jobs.moved import PART, ROWS, WHOLE, Moves
from headrace.spark_jobs.jobs.stamp import Stamp
from headrace.spark_jobs.observe.state import operators_of, stored_rows
from headrace.spark_jobs.operators.frames import MOVED_SCHEMA, operator_of
from headrace.spark_jobs.versioned.layout import decode_numbers
from headrace.spark_jobs.versioned.moved_numbers import tasks_before
from headrace.spark_jobs.versioned.moving import Groups, StoredRow, moved
from headrace.spark_jobs.versioned.state import HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT_ONCE_BYTES = 32 << 20
"""So many bytes of rows are written at a time."""
Headers = dict[int, dict[int, bytes]]
"""The header of each task, by operator."""
_JSON_BEHIND = 2
"""The lines of a file of offsets that come before those of the sources."""


def move(spark: SparkSession, old: str, new: str, tasks: int) -> None:
    """Move the state of one checkpoint to another, and have that one take its place."""
    stamp, source, target = Stamp(spark, old), Folder(spark, old), Folder(spark, new)
    moves = Moves(spark, old)
    _refuse_open(stamp, old)
    moves.stay()
    if target.names(""):
        message = f"`{new}` is not empty; name a folder that does not exist yet"
        raise StateOfOtherOptions(message)
    last = stamp.last()
    starts = _offsets(source.read(f"offsets/{last}"))
    headers = headers_of(spark, old)
    refuse_headers(headers, old, tasks)
    said = {"to": target.url, "batch": moves.origin().batch + last + 1}
    begun = moves.begin(json.dumps(said))
    # A driver that runs has begun a micro-batch, or sees before it writes that the move was begun.
    _refuse_open(stamp, old)
    if stamp.last() != last:
        raise StateOfOtherOptions(_goes_on(old, new))
    target.write(PART, "")
    target.write("metadata", source.read("metadata"))
    stamp.hand_topics_to(Stamp(spark, new))
    move_rows(spark, old, headers, f"{target.url.rstrip('/')}/{ROWS}", tasks)
    target.write(WHOLE, json.dumps({"from": source.url, **said, "starts": starts}))
    if not moves.end(begun):
        raise StateOfOtherOptions(_goes_on(old, new))


def headers_of(spark: SparkSession, old: str) -> Headers:
    """Return the headers of a checkpoint's state, by operator and task."""
    found: Headers = {}
    for operator in operators_of(spark, old):
        rows = stored_rows(spark, old, operator).where(F.col("name") == HEADER)
        found[operator] = {row.task: bytes(row.row) for row in rows.collect()}
    return found


def refuse_headers(headers: Headers, old: str, tasks: int) -> None:
    """Refuse state that is in so many tasks already, or that a step has none of."""
    for of_tasks in headers.values():
        if not of_tasks:
            # A job on the new checkpoint would find no state of that step, and could not begin.
            message = (
                f"a step of the job that writes `{old}` has had no record yet, so it has no state"
                " that could be moved; let the job run until each step has had one"
            )
            raise StateOfOtherOptions(message)
        if tasks_before([*map(decode_numbers, of_tasks.values())]) == tasks:
            message = f"`{old}` has its state in {tasks} tasks already; choose another number"
            raise SettingsInvalid(message)


def move_rows(spark: SparkSession, old: str, headers: Headers, folder: str, tasks: int) -> None:
    """Write the rows of all operators of a checkpoint, as they are in other tasks, to a folder."""
    for operator, of_tasks in headers.items():
        names = {name for header in of_tasks.values() for name in decode_numbers(header)}
        groups = Groups.of(of_tasks.values())
        # Spark 4.1 would look for another kind of function in the types, and warn that it is none.
        group_of = F.udf(groups.group_of, "string", useArrow=False)
        rows = stored_rows(spark, old, operator).where(F.col("name") != HEADER)
        others = _stored(rows.orderBy(group_of("name"), "name", "task"))
        for some in _in_pieces(moved(of_tasks, others, tasks)):
            named = [(operator_of(names), *row) for row in some]
            written = spark.createDataFrame(named, MOVED_SCHEMA).write.mode("append")
            written.parquet(folder)


def _goes_on(old: str, new: str) -> str:
    return (
        f"the job that writes `{old}` has gone on while its state was moved; stop it, delete"
        f" `{new}`, and move the state once more"
    )


def _refuse_open(stamp: Stamp, old: str) -> None:
    if stamp.begun() is not None:
        message = (
            f"`{old}` has a micro-batch that was begun and not finished; stop the job if it runs,"
            " start it once by `headrace spark JOB --once`, and move its state behind that"
        )
        raise StateOfOtherOptions(message)


def _stored(rows: DataFrame) -> Iterator[StoredRow]:
    for row in rows.toLocalIterator():
        yield StoredRow(row.task, row.name, bytes(row.row))


def _in_pieces(rows: Iterable[StoredRow]) -> Iterator[list[StoredRow]]:
    piece: list[StoredRow] = []
    size_bytes = 0
    for row in rows:
        piece.append(row)
        size_bytes += len(row.row)
        if size_bytes > _AT_ONCE_BYTES:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece


def _offsets(text: str) -> Mapping[str, Mapping[str, int]]:
    """Return the offsets at which a micro-batch ended, by topic and partition."""
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    for line in text.splitlines()[_JSON_BEHIND:]:
        if line == "-":
            continue
        for topic, offsets in json.loads(line).items():
            if not isinstance(offsets, dict):
                message = "this checkpoint reads something else than topics, which cannot be moved"
                raise StateUnavailable(message)
            starts[topic] |= offsets
    return starts
