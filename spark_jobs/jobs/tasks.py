"""Note in a checkpoint into how many tasks its keys are spread, and for how many partitions.

    <checkpoint>/tasks/00000000    {"partitions": 4, "tasks": 4}

A file is written before the first micro-batch begins, and the one with the highest number holds. A
checkpoint of an earlier version has none. Its tasks have no salts (`operators/salts.py`), and all
stages read all inputs (`operators/arriving.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.spark_jobs.jobs.stamp import Stamp
from headrace.spark_jobs.operators.arriving import APART
from headrace.spark_jobs.operators.salts import SALTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark_jobs.jobs.config import JobConfig

Config = TypeVar("Config", bound="JobConfig")
_TASKS, _PARTITIONS = "tasks", "shuffle_partitions"
AT_A_TIME = "spark.sql.shuffle.partitions"
_TASKS_BEFORE = 16
"""So many tasks had a job whose file did not say it, before checkpoints noted them."""


class Noted(NamedTuple):
    """The note of a checkpoint."""

    tasks: int
    partitions: int | None
    """None if its tasks have no salts."""


class TasksNote:
    """Reads and writes it."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Open the checkpoint; nothing is read yet."""
        self._spark = spark
        self._stamp = Stamp(spark, checkpoint)
        self._at_a_time = spark.conf.get(AT_A_TIME) or ""

    def settled(self, config: Config) -> Config:
        """Return a job with the tasks of its checkpoint, unless its file says another number.

        A checkpoint without any micro-batch takes what the job says.
        """
        wanted = self._wanted(config)
        # One without a note says that it has no salts, which is never wanted.
        if self._stamp.is_new() and self._noted() != wanted:
            self._stamp.note(_TASKS, wanted._asdict())
        if _TASKS in config.model_fields_set:
            return config
        return config.model_copy(update={_TASKS: self._noted().tasks})

    def begin(self) -> None:
        """Have a query that is planned from now on find its tasks where the checkpoint has them."""
        partitions = self._noted().partitions
        if partitions is not None:
            self._spark.conf.set(AT_A_TIME, str(partitions))
            self._spark.conf.set(SALTS, str(partitions))
            self._spark.conf.set(APART, "true")

    def go_on(self) -> None:
        """Have a query planned as usual."""
        self._spark.conf.set(AT_A_TIME, self._at_a_time)
        for setting in (SALTS, APART):
            self._spark.conf.unset(setting)

    def _wanted(self, config: JobConfig) -> Noted:
        """Return what a new checkpoint is to have: no more partitions than this machine has cores.

        Each takes its time in every micro-batch, whether or not it has a core. A file that says a
        number has that one.
        """
        partitions, context = config.shuffle_partitions, self._spark.sparkContext
        is_here = (context.master or "").startswith("local[")
        if is_here and _PARTITIONS not in config.model_fields_set:
            partitions = min(partitions, context.defaultParallelism)
        return Noted(config.tasks, partitions)

    def _noted(self) -> Noted:
        noted = self._stamp.last_note(_TASKS)
        if noted is not None:
            return Noted(**noted)
        options = self._stamp.options() or {}
        return Noted(options.get(_TASKS, _TASKS_BEFORE), None)
