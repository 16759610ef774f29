"""Checkpoints whose state was moved into other tasks: which of the two a job may go on from.

    OLD/move/begun-*  {"to": NEW, "batch": ...}; a job that goes on from OLD removes it, and so
                      does a move that comes later
    OLD/move/done     the same file under its new name: from then on OLD is refused
    NEW/move/part     state is on its way into NEW
    NEW/move/whole    {"from": OLD, "to": NEW, "batch": the number of its first micro-batch,
                       "starts": {topic: {partition: offset}}}
    NEW/move/rows/    the state that the first micro-batch begins with

The renaming in OLD is the moment in which NEW takes its place. Before it NEW is refused, and behind
it OLD is. A job looks in each micro-batch before it writes anything, so a driver that runs while
state is moved either ends the move or is ended by it.

NEW has the id of OLD and goes on with its numbers, so every sink takes it for OLD. Spark counts the
micro-batches of NEW from zero, and `batch` is added to what Spark says.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.contracts.errors import StateOfOtherOptions
from headrace.spark_jobs.folder import UNFINISHED, Folder
from headrace.spark_jobs.jobs.filled import BATCH, Filled
from headrace.spark_jobs.operators.frames import MOVED, TAKEN, refuse_rows_left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART, WHOLE, ROWS = "move/part", "move/whole", "move/rows"
_BEGUN, _DONE = "begun-", "done"
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_PRUNING = "org.apache.spark.sql.catalyst.optimizer.ColumnPruning"
"""Spark's rule that takes state to begin with for columns that nobody reads."""


class Origin(NamedTuple):
    """Where the state of a checkpoint comes from; nothing, if it was not moved."""

    batch: int = 0
    """The number of its first micro-batch."""
    starts: Mapping[str, Mapping[str, int]] = {}
    rows: str | None = None
    """The folder of its first rows, None once the first micro-batch is through."""

    def begin(self, spark: SparkSession) -> None:
        """Have a query that is planned from now on begin with these rows."""
        if self.rows is not None:
            spark.conf.set(MOVED, self.rows)
            spark.conf.unset(TAKEN)
            rules = [spark.conf.get(_EXCLUDED, None), _PRUNING]
            spark.conf.set(_EXCLUDED, ",".join(filter(None, rules)))

    def refuse_rows_left(self, spark: SparkSession) -> None:
        """Refuse a query that was planned since `begin` and does not take all of these rows."""
        if self.rows is not None:
            refuse_rows_left(spark, self.rows)

    def go_on(self, spark: SparkSession) -> None:
        """Have a query planned as usual."""
        if self.rows is not None:
            spark.conf.unset(MOVED)
            spark.conf.unset(TAKEN)
            rules = (spark.conf.get(_EXCLUDED, None) or "").split(",")
            others = ",".join(rule for rule in rules if rule != _PRUNING)
            if others:
                spark.conf.set(_EXCLUDED, others)
            else:
                spark.conf.unset(_EXCLUDED)


class Moves:
    """Looks into a checkpoint for state that was moved into it, or out of it."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._folder = Folder(spark, checkpoint)

    def origin(self) -> Origin:
        """Return where the state comes from; refuse a checkpoint that is not whole."""
        names = self._folder.names("move")
        if "whole" not in names:
            # A move may have died before the name of its first file was complete.
            if any(name.startswith("part") for name in names):
                message = (
                    f"state was to be moved into `{self._checkpoint}`, and is not there as a whole;"
                    " delete this folder, and move it once more"
                )
                raise StateOfOtherOptions(message)
            starts = Filled(self._spark, self._checkpoint).starts()
            return Origin() if starts is None else Origin(BATCH + 1, starts)
        said = json.loads(self._folder.read(WHOLE))
        if self._folder.names("offsets"):
            # Spark removes the files of early micro-batches.
            is_over = any(name.isdigit() for name in self._folder.names("commits"))
            return Origin(said["batch"], said["starts"], None if is_over else self._rows)
        self._refuse_unless_done(said)
        return Origin(said["batch"], said["starts"], self._rows)

    def stay(self) -> None:
        """End a move that was begun; refuse a checkpoint whose state was moved out of it."""
        for name in self._begun():
            self._folder.remove(f"move/{name}")
        self._refuse_if_done()

    def begin(self, said: str) -> str:
        """Note that a move begins; return the note's name. Of two moves at a time none goes on."""
        own = f"{_BEGUN}{uuid.uuid4().hex}"  # noqa: TID251 - a name that no result depends on
        self._folder.write(f"move/{own}", said)
        self._refuse_if_done()
        if self._begun() != [own]:
            message = (
                f"another command moves the state of `{self._checkpoint}` at the same time; let it"
                " end, and see whether there is anything left to do"
            )
            raise StateOfOtherOptions(message)
        return own

    def end(self, begun: str) -> bool:
        """Have the new checkpoint take the place of this one, unless a job has gone on from it."""
        return self._folder.rename(f"move/{begun}", f"move/{_DONE}")

    def _begun(self) -> list[str]:
        names = self._folder.names("move")
        return [name for name in names if name.startswith(_BEGUN) and not name.endswith(UNFINISHED)]

    def _refuse_if_done(self) -> None:
        if _DONE in self._folder.names("move"):
            to = json.loads(self._folder.read(f"move/{_DONE}"))["to"]
            message = (
                f"the state of `{self._checkpoint}` was moved to `{to}`; name that checkpoint in"
                " the job, and its number of tasks"
            )
            raise StateOfOtherOptions(message)

    def guarded(
        self, write: Callable[[DataFrame, int], None], origin: Origin
    ) -> Callable[[DataFrame, int], None]:
        """Wrap a writer of micro-batches: it gets the query's own number of each."""

        def write_numbered(results: DataFrame, batch_id: int) -> None:
            self.stay()
            # It is the session of the query, and later micro-batches have no rows to begin with.
            origin.go_on(results.sparkSession)
            write(results, batch_id + origin.batch)

        return write_numbered

    @property
    def _rows(self) -> str:
        return f"{self._folder.url.rstrip('/')}/{ROWS}"

    def _refuse_unless_done(self, said: Mapping[str, Any]) -> None:
        """Refuse state that its old checkpoint was not told to leave to this one."""
        old = Folder(self._spark, said["from"])
        if not old.names(""):
            # No job can go on from a checkpoint that was deleted.
            return
        done = json.loads(old.read(f"move/{_DONE}")) if _DONE in old.names("move") else {}
        if any(done.get(name) != said[name] for name in ("to", "batch")):
            message = (
                f"the state of `{said['from']}` was to be moved to `{self._checkpoint}`, and that"
                " was not finished; delete this folder, and move it once more"
            )
            raise StateOfOtherOptions(message)
