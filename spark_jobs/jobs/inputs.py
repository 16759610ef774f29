"""The inputs of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.spark_jobs.operators.frames import InputProgress


@dataclass(frozen=True)
class Inputs:
    """The records of all inputs in one frame, and the progress of each input."""

    names: Sequence[str]
    """The inputs' names in the order of their numbers."""
    records: DataFrame
    progress: InputProgress
    firsts: Mapping[str, Sequence[int]]
    """By topic, the first offset that each partition still has."""

    def number_of(self, name: str) -> int:
        """Return the number of an input in the frame."""
        return self.names.index(name)
