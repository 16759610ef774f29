"""A chain over a store in memory, a batch at a time, restarted at will."""

from __future__ import annotations

from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import Headers, Record
from headrace.contracts.topology import with_names
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch, Step
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.store import Store

PIPELINE = "operators"
FAR_MS = 1 << 40


def record(
    timestamp_ms: int,
    key: bytes | None = b"k",
    value: bytes | None = b"1",
    headers: Headers = (),
    offset: int | None = None,
) -> Record:
    """A record with what matters in a test."""
    return Record(key, value, timestamp_ms, headers, "clicks", 0, offset)


class Service:
    """One life of a chain; the next one begins over the same store."""

    def __init__(
        self, *policies: AnyOperator, store: Store | None = None, explain: bool = False
    ) -> None:
        """Go on with what the store has."""
        self.store = MemoryStore() if store is None else store
        self.overlay = Overlay(self.store, PIPELINE)
        self.chain = Chain(with_names(policies), self.overlay.view, explain=explain)

    def take(self, *records: Record) -> Step:
        """Return the output for one batch; then everything is committed."""
        step = self.chain.process(Batch.of(list(records)))
        if step.failure is None:
            self.commit()
        return step

    def commit(self) -> None:
        """Save and commit, and see that no record was lost."""
        assert self.chain.imbalance() == {}
        self.chain.save()
        self.overlay.commit({})

    def restarted(self, *policies: AnyOperator, explain: bool = False) -> Service:
        """A new life over what was committed, maybe with other policies."""
        return Service(*policies, store=self.store, explain=explain)

    @property
    def held(self) -> int:
        """How many records the operators hold now."""
        return sum(operator.counts.held for operator in self.chain.operators)


def left(step: Step) -> list[Record]:
    """Records that left the chain."""
    return step.forwarded.records
