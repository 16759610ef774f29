"""The sidecar's suppress as a step of a table, for vectors that have one behind a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.contracts.policies import BufferPolicy, SuppressPolicy
from headrace.contracts.record import Record
from headrace.services.operators.operator import Batch
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.updates import BufferSamples
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.spark_jobs.versioned.arrival import Arrival
from headrace.spark_jobs.versioned.changes import Change
from headrace.spark_jobs.versioned.history import Version, VersionedStore
from headrace.spark_jobs.versioned.refusals import refuse_suppress
from headrace.spark_jobs.versioned.tables import Table

ANSWERS = {"emit": "emit-early", "shutdown": "shut-down"}


class SuppressedState:
    """The store and the measurements, which outlive a batch."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.overlay = Overlay(self.store, "conformance")
        self.operator: Suppress | None = None
        self.samples = BufferSamples()
        self.emitted = 0
        self.failed = False

    @property
    def held(self) -> int:
        """Updates that wait."""
        return 0 if self.operator is None else self.operator.counts.held

    @property
    def held_bytes(self) -> int:
        """Return the weight of the rows."""
        return 0 if self.operator is None else self.operator.weight

    def save(self) -> None:
        """Write out what the operator remembers."""
        if self.operator is not None:
            self.operator.save()
            self.overlay.commit({})

    def metrics(self) -> dict[str, float]:
        """KIP-328's metrics as they stand now."""
        if self.operator is None:
            return {}
        samples = self.samples
        return {
            "suppression_emit_total": self.emitted,
            "suppression_buffer_size_avg": samples.size_sum / samples.samples,
            "suppression_buffer_size_max": samples.size_max,
            "suppression_buffer_count_avg": samples.count_sum / samples.samples,
            "suppression_buffer_count_max": samples.count_max,
        }


class Suppressed:
    """`suppress` behind a table."""

    versioned = False
    retention_ms: int | None = None

    def __init__(
        self, state: SuppressedState, name: str, parent: Table, step: dict[str, Any]
    ) -> None:
        refuse_suppress(parent, name)
        parent.send_old(force=True)
        given = step["buffer"]
        bounds = {"records": given["max_records"], "bytes": given["max_bytes"]}
        answer = {"when_full": ANSWERS.get(given["when_full"])}
        policy = SuppressPolicy(
            until="time-limit",
            limit_ms=step["time_limit_ms"],
            buffer=BufferPolicy.model_validate(bounds | answer),
        )
        self.name = name
        self._parent = parent
        self._state = state
        state.overlay = Overlay(state.store, "conformance")
        self._operator = state.operator = Suppress(policy, state.overlay.view("suppress"))
        self._operator.samples = state.samples

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Return the records that an arrival releases."""
        changes: list[Change] = []
        for change in self._parent.take(cause, arrival):
            update = change.record._replace(
                key=change.key, value=change.new, timestamp_ms=change.timestamp_ms
            )
            step = self._operator.process(Batch([update], [cause], [change.old]))
            self._state.failed = self._state.failed or step.failure is not None
            self._state.emitted += len(step.forwarded.records)
            changes += [
                Change(
                    cause,
                    each.key or b"",
                    each.value,
                    None,
                    each.timestamp_ms,
                    is_latest=True,
                    record=each,
                )
                for each in step.forwarded.records
            ]
        return changes

    def latest(self, key: bytes) -> Version | None:
        """The vectors look up no table behind suppress."""
        raise NotImplementedError

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """The vectors look up no table behind suppress."""
        raise NotImplementedError

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:
        """The vectors look up no table behind suppress."""
        raise NotImplementedError

    def send_old(self, *, force: bool) -> bool:
        """Old values are not told behind suppress."""
        return self._parent.send_old(force=force)

    def make_readable(self) -> None:
        """The vectors look up no table behind suppress."""
        raise NotImplementedError

    def versioned_stores(self) -> list[VersionedStore]:
        """Those above."""
        return self._parent.versioned_stores()
