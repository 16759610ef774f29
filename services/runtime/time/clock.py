"""How far a source is by the clock, where `max-delay` says how late a record can come at most.

The broker, asked at some moment, had nothing that the task has not decided: then all records were
there by that moment, and none comes any more whose timestamp is further back than `max-delay`. So
stream time goes on to that moment less `max-delay`, as if a record of that time had come. The new
time is state, and is committed with all that left because of it.

It moves by a tenth of `max-delay`, and at least by a second: each time costs a transaction, and
nobody waits longer for it than a tenth. The task does not know who waits: a reader may join with
any other topic. So it goes on for as long as the partition is silent, or until it is idle.

Behind a repartition the lanes hear of it, and the clock is not asked again: what stands behind the
merge is as far as they are, whenever that lets something go.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.contracts.origin import IDLE
from headrace.contracts.pipeline import PipelineSpec
from headrace.services.operators.chain import Chain
from headrace.services.runtime.input.survey import Surveyed

_PARTS_OF_DELAY = 10
_AT_LEAST_MS = 1_000


class Clock:
    """One task's."""

    def __init__(self, spec: PipelineSpec, surveyed: Callable[[], Surveyed]) -> None:
        """`surveyed` is what was last heard of the source's partition."""
        self._delay_ms = spec.source.max_delay_ms
        self._surveyed = surveyed

    @property
    def is_trusted(self) -> bool:
        """Whether it says anything at all."""
        return self._delay_ms is not None

    def moves_to_ms(self, chain: Chain, position: int, source_state: int) -> int | None:
        """How far the source is by the clock, None where that is no news.

        The task has no records waiting; all before the position are decided.
        """
        if self._delay_ms is None or source_state == IDLE:
            return None
        if chain.lanes is not None:
            return chain.time_ms if chain.is_due(chain.time_ms) else None
        surveyed = self._surveyed()
        if not surveyed.is_all_decided(position):
            return None
        # Read off the clock by then: on a machine that has slept since, no clock tells how long.
        reached_ms = surveyed.at_ms - self._delay_ms
        step_ms = max(_AT_LEAST_MS, self._delay_ms // _PARTS_OF_DELAY)
        return reached_ms if reached_ms >= chain.time_ms + step_ms else None
