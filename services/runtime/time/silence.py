"""Whether a partition is silent, so that nobody need wait for it: what its owner says of it.

The first hop looks at the clock, and only once the broker, asked behind that time, had nothing
left to read: a partition that is behind is never idle. An empty one is idle at once. Behind a
repartition nobody looks at the clock: a place is idle when all source partitions say that they are.

Operators may hold records for ever, and readers need not wait with them: such a partition is idle
as well. But if the clock releases those records (`idle` of a reorder, `max-delay`), the partition
becomes idle behind them, so that they are on time for readers of the cleaned topic. Behind a
repartition the clock is over once all source partitions are idle: they say no more how far it is.

With `idle: never` readers of the cleaned topic are told nothing. Behind a repartition it is said
that the partition is at its end: it holds back whatever is held, and is not waited for by those
that run ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.contracts.hops import Hop
from headrace.contracts.origin import AT_END, AWAKE, IDLE
from headrace.contracts.pipeline import IDLE_MS, PipelineSpec
from headrace.services.operators.chain import Chain


class Silence:
    """One task's; its clock only goes forward."""

    def __init__(self, spec: PipelineSpec, hop: Hop, was_at_end: Callable[[float], bool]) -> None:
        """`was_at_end` says whether the broker, asked behind a time, had nothing left."""
        idle_ms = spec.source.idle_ms
        self._says = AT_END if idle_ms is None else IDLE
        self._goes_by_clock = spec.source.max_delay_ms is not None and hop.is_first
        self._is_last = hop.end is None
        self._is_told = idle_ms is not None or hop.end is not None
        self._idle_s = (IDLE_MS if idle_ms is None else idle_ms) / 1000
        self._was_at_end = was_at_end
        self._wait_s = self._idle_s
        self._since_s = time.monotonic()

    def begins(self, *, is_empty: bool) -> None:
        """The partition is read from now on; whether nothing ever stood in it."""
        self._since_s = time.monotonic()
        self._wait_s = 0.0 if is_empty else self._idle_s

    def heard(self) -> None:
        """Something came."""
        self._since_s = time.monotonic()
        self._wait_s = self._idle_s

    def state(self, chain: Chain) -> int:
        """Return the state to tell now; no records wait, and no transaction is open."""
        if not self._is_told or self._lets_go(chain):
            return AWAKE
        until_s = self._since_s
        if chain.lanes is None:
            until_s += self._wait_s
        elif not chain.lanes.are_all_idle:
            return AWAKE
        is_silent = time.monotonic() >= until_s and self._was_at_end(until_s)
        return self._says if is_silent else AWAKE

    def _lets_go(self, chain: Chain) -> bool:
        """Whether it becomes idle behind what it holds: once it is, the clock lets go of nothing.

        A partition at its end goes on by the clock.
        """
        is_waited_for = self._is_last or (self._goes_by_clock and self._says == IDLE)
        return is_waited_for and chain.lets_go(by_clock=self._goes_by_clock)
