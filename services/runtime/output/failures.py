"""Failures of operators and refusals of topics: told once a kind, not a record; or the end."""

from __future__ import annotations

import time
from operator import itemgetter
from typing import NamedTuple

from headrace.contracts.decision import Reason
from headrace.contracts.errors import BufferFull
from headrace.contracts.record import Record, offset_of
from headrace.services.observe.logs import logger as logger_of
from headrace.services.operators.operator import Aside, Failure
from headrace.services.runtime.input.ahead import StopAtError, failed

_AGAIN_AFTER_S = 60.0
_KINDS_MAX = 500
_WHAT = {
    Reason.FAILED: "an operator failed on a record, which is dead",
    Reason.TOO_LARGE: "a record is more than a topic takes, and is dead",
}
logger = logger_of(__name__)


class _Kind(NamedTuple):
    operator: str
    exception: str


class Failures:
    """Of all tasks of a worker."""

    def __init__(self, *, stops: bool) -> None:
        """Whether the first one ends everything."""
        self._stops = stops
        self._told_at_s: dict[_Kind, float] = {}
        self._untold: dict[_Kind, int] = {}

    def take(self, dead: list[Aside], records: list[Record]) -> None:
        """Records are dead, some for an operator that failed; `records` caused all of them."""
        of_operators = [aside for aside in dead if aside.reason is Reason.FAILED]
        if of_operators and self._stops:
            raise failed(min(of_operators, key=_cause_of), records)
        for aside in dead:
            if aside.reason in _WHAT:
                self._tell(aside)

    def _tell(self, aside: Aside) -> None:
        """A line of each kind at once, and then now and then."""
        kind, now_s = _Kind(aside.operator, aside.exception), time.monotonic()
        told_at_s = self._told_at_s.get(kind)
        if told_at_s is not None and now_s - told_at_s < _AGAIN_AFTER_S:
            self._untold[kind] += 1
            return
        if len(self._told_at_s) >= _KINDS_MAX:
            self._told_at_s.clear()
        self._told_at_s[kind] = now_s
        logger.warning(
            _WHAT[aside.reason],
            operator=aside.operator,
            why=aside.detail,
            topic=aside.record.topic,
            partition=aside.record.partition,
            offset=aside.record.offset,
            others_like_it=self._untold.get(kind, 0),
        )
        self._untold[kind] = 0


_cause_of = itemgetter(0)


def full(failure: Failure, records: list[Record]) -> StopAtError:
    """A buffer that must shut down is full, at one of these records."""
    return StopAtError(offset_of(records[failure.cause]), BufferFull(failure.sentence))
