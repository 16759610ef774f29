"""Turn records on which a step failed into dead letters and sentences, and count them by kind."""

from __future__ import annotations

import json
import re
import sysconfig
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import headrace
from headrace.contracts.dead_letter import DeadLetter, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.raised import clause_of
from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.functions import StepFailed

_LIBRARIES = re.compile(r"site-packages|dist-packages|pyspark|py4j|^<")
_HEADRACE = str(Path(headrace.__path__[0]))
_STACKTRACE_CHARACTERS_MAX = 4_000


class Failure(NamedTuple):
    """A record, as it came from its topic, and the error of a step on it."""

    record: Record
    step: str
    error: BaseException
    """The exception."""
    function: str
    """The name of the function that raised it."""
    line: str
    """The line of the user's own code, empty if there is none."""

    @property
    def clause(self) -> str:
        """The error in a clause."""
        return f"`{self.function}` raised {clause_of(self.error)}"

    @property
    def sentence(self) -> str:
        """The error and its place, for a job that stops there."""
        topic, partition, offset = self.record[-3:]
        line = f" ({self.line})" if self.line else ""
        return (
            f"{self.clause}{line} in the step `{self.step}`, at {topic}/{partition} offset"
            f" {offset}; mend it, or have such records be dead letters, without `on-failure: stop`"
        )


def failure_of(record: Record, failed: Exception, topology: str) -> Failure:
    """Make the failure of a record; an error outside of any step belongs to the topology."""
    error: BaseException = failed
    step, function = topology, topology
    if isinstance(failed, StepFailed) and failed.__cause__ is not None:
        error, step = failed.__cause__, failed.step
        function = getattr(failed.function, "__name__", step)
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if is_theirs(frame[0])]
    if not theirs:
        return Failure(record, step, error, function, "")
    last = theirs[-1]
    return Failure(record, step, error, last.name, f"{last.filename}, line {last.lineno}")


def as_dead(failure: Failure) -> Record:
    """Return the record as it goes to the dead-letter topic."""
    trace = "".join(traceback.format_exception(failure.error, chain=False))
    letter = DeadLetter(
        failure.record,
        failure.step,
        Reason.FAILED,
        failure.clause,
        _class_of(failure.error),
        trace[-_STACKTRACE_CHARACTERS_MAX:],
    )
    return failure.record._replace(headers=dead_headers(letter))


def kinds_of(failures: Iterable[Failure]) -> dict[str, int]:
    """Count failures by kind: by step, class of error, and line of code."""
    kinds = Counter((each.step, _class_of(each.error), each.line) for each in failures)
    return {json.dumps(kind): records for kind, records in kinds.items()}


def is_theirs(file: str) -> bool:
    """Return whether code is the user's own: neither ours, nor Python's, nor a library's."""
    ours = file.startswith((_HEADRACE, sysconfig.get_path("stdlib")))
    return not ours and _LIBRARIES.search(file) is None


def _class_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
