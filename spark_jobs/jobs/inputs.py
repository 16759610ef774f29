"""The inputs of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from headrace.spark_jobs.operators.arriving import Arriving, RegisteredCheck, together
from headrace.spark_jobs.operators.frames import InputProgress
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.read.decode import (
    Format,
    JsonValue,
    RegisteredValue,
    checked,
    checked_alone,
)
from headrace.spark_jobs.read.json_text import JsonCheck
from headrace.spark_jobs.shapes import READ


@dataclass(frozen=True)
class Inputs:
    """The records of each input, and its progress."""

    names: Sequence[str]
    """The inputs' names in the order of their numbers."""
    unchecked: Sequence[DataFrame]
    """The records of each input, as they were read."""
    formats: Mapping[int, Format]
    """By input; values of other inputs are not decoded."""
    progress: InputProgress
    firsts: Mapping[str, Sequence[int]]
    """By topic, the first offset that each partition still has."""
    leaving: Leaving | None = None
    """The way of results to the job's sink, if it takes no rows."""

    @cached_property
    def frames(self) -> Sequence[DataFrame]:
        """The records of each input, unreadable ones marked, and in `READ` the fields of others."""
        return [
            checked_alone(frame, number, self.formats[number])
            if number in self.formats
            else checked(frame, {})
            for number, frame in enumerate(self.unchecked)
        ]

    @property
    def records(self) -> DataFrame:
        """The records of all inputs in one frame, unreadable ones marked."""
        return together([frame.drop(READ) for frame in self.frames])

    @property
    def arriving(self) -> Arriving:
        """The records of all inputs; Python checks those that it can, where it bundles them."""
        checks: dict[int, JsonCheck | RegisteredCheck | None] = {}
        frames = []
        for number, frame in enumerate(self.unchecked):
            one, arriving = self.formats.get(number), frame
            if one is None:
                checks[number] = None
            elif isinstance(one, JsonValue | RegisteredValue) and JsonCheck.is_for(one.schema):
                checks[number] = _check_of(one)
            else:
                arriving = checked(frame, {number: one})
            frames.append(arriving)
        return Arriving(together(frames), checks, self.leaving, frames)

    def number_of(self, name: str) -> int:
        """Return the number of an input in the frame."""
        return self.names.index(name)


def _check_of(values: JsonValue | RegisteredValue) -> JsonCheck | RegisteredCheck:
    check = JsonCheck(values.schema)
    return check if isinstance(values, JsonValue) else RegisteredCheck(check, values.registry)
