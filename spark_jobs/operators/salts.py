"""Salts of tasks: they decide in which of Spark's partitions a task runs and has its state.

Spark hashes the key of a group to find its partition. By their own numbers, 16 tasks fall into four
partitions as 6, 4, 3 and 3, and four tasks as 3, 1, none and none; the fullest partition decides
how long a micro-batch takes. So a task's key has a salt: the smallest number with which the task
falls into `task % partitions`.

    key of a group    task INT, salt INT; in a checkpoint without salts task INT

A task's salt depends on the partitions alone, and not on how many tasks there are. Spark refuses
state whose keys have other columns, so nobody takes a checkpoint with salts for an empty one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.versioned.spread import SEED

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    Hashes = NDArray[np.uint32]

SALTS = "spark.headrace.salts"
"""The setting of a session by which tasks have salts, for so many partitions."""
_TASK, _SALT = "task", "salt"
_INT_BYTES = 4


def salted(rows: DataFrame, tasks: int) -> tuple[DataFrame, list[str]]:
    """Return rows of tasks, and the columns by which to group them."""
    partitions = _partitions_of(rows.sparkSession)
    if partitions is None:
        return rows, [_TASK]
    # One literal of text, which Spark makes an array of once; a literal each would be a call each.
    salts = F.lit(",".join(map(str, salts_of(tasks, partitions).tolist())))
    salt = F.element_at(F.split(salts, ",").cast("array<int>"), F.col(_TASK) + 1)
    return rows.withColumn(_SALT, salt), [_TASK, _SALT]


@cache
def salts_of(tasks: int, partitions: int) -> NDArray[np.int32]:
    """Return the salt of each task."""
    numbers = np.arange(tasks)
    hashed = _mixed(np.full(tasks, SEED, np.uint32), numbers)
    salts = np.full(tasks, -1, np.int32)
    salt = 0
    while len(open_ := np.flatnonzero(salts < 0)):
        falls = _mixed(hashed[open_], np.full(len(open_), salt)).view(np.int32) % partitions
        salts[open_[falls == numbers[open_] % partitions]] = salt
        salt += 1
    return salts


def _partitions_of(spark: SparkSession) -> int | None:
    """Return for how many partitions the tasks of a session have salts, None if they have none."""
    said = spark.conf.get(SALTS, None)
    return None if said is None else int(said)


def _mixed(hashed: Hashes, numbers: NDArray[np.int64]) -> Hashes:
    """Hash one more column of INT into a hash, as Spark's Murmur3 does."""
    words = numbers.astype(np.uint32)
    mixed = _turned(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    hashed = _turned(hashed ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(_INT_BYTES)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(factor)
    return hashed


def _turned(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
