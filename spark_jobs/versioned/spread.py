"""The task of a key, computed as Spark computes it: `pmod(xxhash64(key), tasks)`.

Spark hashes a record's key in its own plan (`operators/frames.py`). Messages from one stage to the
next, and state that is moved into other tasks, have keys and no plan. So this is the same hash once
more: XXH64 with Spark's seed.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.spark_jobs.versioned.records import Integers

TASKS_BY_KEY = "option:tasks:by-key"
"""The number in a task's header that says over how many tasks keys are spread."""
HOT_KEYS, LISTED = "hot-keys", "listed"
"""The words of the option that tells which keys are hot: their table's rows are in all tasks.

A state without it has none.
"""
REGROUPS = ":regroups"
"""Ends the name of an option of windows whose groups have other keys than their records.

Checkpoints of earlier versions lack it.
"""
MEETS_BY, KINDS = "meets_by", "kinds"
"""Options that tell by which column a look-up meets, and of which kinds are what windows fold.

Checkpoints of earlier versions lack them too.
"""
MEETS_AS = "meets_as"
"""The option that tells how the text of a column is written by which records meet."""
LEFT_COLUMNS, RIGHT_COLUMNS = "left_columns", "right_columns"
"""Options that tell which columns the records have that a join of two streams holds of each side.

The number is below zero if they are held as they were read, with all columns that there are.
Checkpoints of earlier versions lack them as well.
"""
SEED = 42
"""Spark's seed, for the hash of the first column."""
_SIGN = 1 << 63


def task_of(key: bytes | None, partition: int, tasks: int) -> int:
    """Return the task of a record; one without a key goes by its partition."""
    return task_number(key, partition) % tasks


def task_number(key: bytes | None, partition: int) -> int:
    """Return the number whose remainder is the task of a record, however many tasks there are."""
    return partition if key is None else xxhash64(key)


def tasks_of(keys: Iterable[bytes], size: int, tasks: int) -> Integers:
    """Return the task of each of so many keys."""
    hashed = np.fromiter(map(xxh64_intdigest, keys, repeat(SEED)), np.uint64, size)
    found: Integers = hashed.view(np.int64) % tasks
    return found


def xxhash64(key: bytes) -> int:
    """Hash bytes as Spark's `xxhash64` of one binary column does; the answer has a sign."""
    return (xxh64_intdigest(key, SEED) ^ _SIGN) - _SIGN
