"""A task's part in keeping source partitions together (see `skew`): to say, to hear, or neither."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.contracts.hops import Hop
from headrace.contracts.origin import AWAKE
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.chain import Chain
from headrace.services.runtime.time.skew import Skew


class Together:
    """One task's."""

    def __init__(self, skew: Skew, hop: Hop, partition: int) -> None:
        """The first of several hops says how far it is; the one behind it hears."""
        self._skew = skew
        self._partition = partition
        self._says = hop.is_first and hop.end is not None
        self._hears = not hop.is_first
        self.source_state = AWAKE
        """The word that is given of the source: AWAKE, IDLE or AT_END."""

    def moved(self, chain: Chain, state: int) -> None:
        """The chain is further, or says something else of its source."""
        self.source_state = state
        if self._says:
            self._skew.is_at(self._partition, chain.time_ms, state)
        elif chain.lanes is not None:
            self._skew.hears(self._partition, chain.lanes)

    @property
    def is_alone(self) -> bool:
        """Whether no other task waits to hear how far this one is."""
        return not self._says and not self._hears

    def leave(self) -> None:
        """The task is closed."""
        if self._says:
            self._skew.left(self._partition)
        elif self._hears:
            self._skew.hears_no_more(self._partition)

    def takes(self) -> None:
        """The task has records at hand."""
        if self._says:
            self._skew.takes(self._partition)

    def has_taken(self) -> None:
        """It has taken them."""
        if self._says:
            self._skew.has_taken(self._partition)

    def pieces(self, records: list[Record]) -> Iterable[list[Record]]:
        """Records in pieces between which it may have to wait."""
        return self._skew.pieces(records) if self._says else [records]

    def is_ahead(self) -> bool:
        """Whether it must wait."""
        return self._says and self._skew.is_ahead(self._partition)

    def gives_way(self) -> bool:
        """Whether it lets another one of this process go first."""
        return self._says and self._skew.gives_way(self._partition)

    @property
    def urgent_before_ms(self) -> int:
        """Whom we told of an earlier time may wait for us soon: of other instances, while ahead."""
        return self._skew.slowest_elsewhere_ms if self.is_ahead() else NO_TIME_MS

    def waits_for(self) -> int | None:
        """The partition for which it waits now."""
        slowest = self._skew.slowest
        if slowest is None or not self._skew.is_waiting(self._partition):
            return None
        return slowest[1] if self._says else None

    def skew_ms(self) -> int | None:
        """How far it is ahead of the slowest; None where there is nothing to keep together."""
        return self._skew.ahead_ms(self._partition) if self._says else None

    def wake(self) -> None:
        """Let the task look again, if it waits."""
        if self._says:
            self._skew.wake(self._partition)

    async def wait(self, timeout_s: float) -> None:
        """Wait until it may go on, or for so long."""
        await self._skew.wait(self._partition, timeout_s)
