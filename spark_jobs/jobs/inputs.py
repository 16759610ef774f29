"""The inputs of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from headrace.spark_jobs.operators.frames import InputProgress
from headrace.spark_jobs.shapes import READ


@dataclass(frozen=True)
class Inputs:
    """The records of each input, and its progress."""

    names: Sequence[str]
    """The inputs' names in the order of their numbers."""
    frames: Sequence[DataFrame]
    """The records of each input, unreadable ones marked, and in `READ` the fields of others."""
    progress: InputProgress
    firsts: Mapping[str, Sequence[int]]
    """By topic, the first offset that each partition still has."""

    @property
    def records(self) -> DataFrame:
        """The records of all inputs in one frame."""
        return reduce(DataFrame.unionByName, [frame.drop(READ) for frame in self.frames])

    def number_of(self, name: str) -> int:
        """Return the number of an input in the frame."""
        return self.names.index(name)
