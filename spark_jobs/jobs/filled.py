"""Checkpoints that a backfill begins: which records it joins, and where the stream goes on.

    metadata           {"id": ...}, as Spark writes it: by it a sink knows the checkpoint
    backfill/plan      {"from_ms", "to_ms", "stream": its topic, "begins", "ends"}; the last two are
                       {topic: {partition: offset}}
    backfill/whole     the sink has all rows of these records

The plan comes before the first row, so that a second attempt joins the same records. To the sink,
the backfill is micro-batch 0. The query's first is 1, and begins with the stream at its `ends`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.errors import StateOfOtherOptions
from headrace.spark_jobs.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "backfill"
_PLAN, _WHOLE, _ID = f"{FOLDER}/plan", f"{FOLDER}/whole", "metadata"
BATCH = 0
"""The number that a sink knows the backfill by."""
Offsets = Mapping[str, Mapping[str, int]]
"""An offset of each partition, by topic."""


class Period(NamedTuple):
    """The times that a backfill is asked for: from the first on, and before the second."""

    from_ms: int | None = None
    to_ms: int | None = None


class Plan(NamedTuple):
    """The records that a backfill joins."""

    from_ms: int | None
    to_ms: int
    stream: str
    """The topic of the stream; the other one is the table's."""
    begins: Offsets
    """The first records of the stream."""
    ends: Offsets
    """The ends of both."""


class Filled:
    """Reads and writes the plan of a backfill."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Open the checkpoint; nothing is read yet."""
        self._checkpoint = checkpoint
        self._folder = Folder(spark, checkpoint)

    def plan(self) -> Plan | None:
        """Return the plan that was begun; refuse a checkpoint that a backfill cannot begin."""
        names = self._folder.names("")
        begun = self._folder.names(FOLDER)
        if "whole" in begun:
            message = (
                f"the backfill into `{self._checkpoint}` is done; start the job, which goes on from"
                " there"
            )
            raise StateOfOtherOptions(message)
        if "plan" in begun:
            return Plan(**json.loads(self._folder.read(_PLAN)))
        if {"offsets", "move"} & {*names}:
            message = (
                f"`{self._checkpoint}` is the checkpoint of a job that has begun already; a"
                " backfill begins a new one: name a folder that does not exist yet"
            )
            raise StateOfOtherOptions(message)
        return None

    def begin(self, plan: Plan) -> None:
        """Note a plan, before anything of it is written."""
        if _ID not in self._folder.names(""):
            self._folder.write(_ID, json.dumps({"id": str(uuid.uuid4())}))  # noqa: TID251 - a name that no result depends on
        self._folder.write(_PLAN, json.dumps(plan._asdict()))

    def query_id(self) -> str:
        """Return the id by which a sink knows the checkpoint."""
        return str(json.loads(self._folder.read(_ID))["id"])

    def end(self) -> None:
        """Note that the sink has all rows."""
        self._folder.write(_WHOLE, "")

    def starts(self) -> Offsets | None:
        """Return where the stream goes on, None if no backfill began the checkpoint."""
        begun = self._folder.names(FOLDER)
        if "whole" in begun:
            plan = Plan(**json.loads(self._folder.read(_PLAN)))
            return {plan.stream: plan.ends[plan.stream]}
        if any(name.startswith("plan") for name in begun):
            message = (
                f"a backfill into `{self._checkpoint}` was begun and not finished; finish it by"
                " `headrace spark backfill`, and start the job behind that"
            )
            raise StateOfOtherOptions(message)
        return None
