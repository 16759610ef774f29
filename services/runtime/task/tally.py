"""A task's counts from the moment it is opened, and its view for metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.structs import TopicPartition

from headrace.contracts.decision import Reason
from headrace.contracts.hops import Hop
from headrace.contracts.origin import IDLE
from headrace.contracts.record import NO_TIME_MS
from headrace.services.intake.timestamps import Timestamps
from headrace.services.observe.histogram import COMMIT_RECORDS, COMMIT_SECONDS, Histogram
from headrace.services.observe.snapshot import (
    TaskSnapshot,
    TaskState,
    lateness_snapshot,
    operator_snapshot,
)
from headrace.services.operators.chain import Chain
from headrace.services.operators.lateness import Lateness
from headrace.services.runtime.input.inbox import Inbox
from headrace.services.runtime.input.survey import Surveyed
from headrace.services.runtime.output.life import TransactionBrokenError
from headrace.services.runtime.time.together import Together

FAILED = (KafkaError, IllegalOperation, TransactionBrokenError)
"""The errors that end a task between two commits; it is opened again."""


class Tally:
    """Counts of one task, since it was opened."""

    def __init__(self) -> None:
        """Count from zero."""
        self.taken_records = self.taken_bytes = self.guarded_records = 0
        self.repeated_records = 0
        self.restored_records = 0
        self.unsent: Mapping[Reason, int] = {}
        """The count of the exits, once there are any."""
        self.commits = self.failed_commits = 0
        self._commit_seconds = Histogram(COMMIT_SECONDS)
        self._commit_records = Histogram(COMMIT_RECORDS)
        self._opened_at_s: float | None = None
        self._restored_at_s: float | None = None

    def opened(self) -> None:
        """The task begins to restore its state."""
        self._opened_at_s = time.monotonic()

    def restored(self) -> None:
        """State is whole; from now on the task runs."""
        self._restored_at_s = time.monotonic()

    def took(self, records: int, *, again: bool) -> None:
        """So many records were decided; once more, and for the state alone."""
        self.taken_records += records
        self.repeated_records += records if again else 0

    def took_batch(self, size_bytes: int) -> None:
        """All that a fetch brought was decided."""
        self.taken_bytes += size_bytes

    def committed(self, records: int, seconds: float) -> None:
        """A commit succeeded."""
        self.commits += 1
        self._commit_seconds.take(seconds)
        self._commit_records.take(records)

    def ended(self, problem: BaseException | None) -> None:
        """The task was closed, or must be opened again because of a problem.

        Before its state was restored it had nothing to commit.
        """
        self.failed_commits += self._restored_at_s is not None and isinstance(problem, FAILED)

    def _restore_ms(self) -> int:
        """How long it has restored; none of the time before and behind counts."""
        if self._opened_at_s is None:
            return 0
        return round(((self._restored_at_s or time.monotonic()) - self._opened_at_s) * 1000)

    def snapshot(
        self, task: Shown, surveyed: Surveyed, restore_remaining: int, now_ms: int
    ) -> TaskSnapshot:
        """The task as it is now."""
        is_restoring = task.state == "restoring"
        chain = task.chain
        return TaskSnapshot(
            hop=task.hop.called,
            topic=task.hop.topic,
            partition=task.partition,
            state=task.state,
            position=None if is_restoring else _decided(task, surveyed),
            fetched=surveyed.fetched,
            committed=task.committed,
            end=surveyed.end,
            readable_end=surveyed.readable_end,
            waiting_records=task.inbox.records,
            waiting_bytes=task.inbox.size_bytes,
            uncommitted_records=task.uncommitted_records,
            taken_records=self.taken_records,
            taken_bytes=self.taken_bytes,
            guarded_records=self.guarded_records,
            repeated_records=self.repeated_records,
            intake_dead={} if task.timestamps is None else dict(task.timestamps.dead),
            intake_ahead=0 if task.timestamps is None else task.timestamps.ahead,
            unsent=dict(self.unsent),
            lateness=Lateness() if chain is None else lateness_snapshot(chain.lateness),
            operators=() if chain is None else tuple(map(operator_snapshot, chain.operators)),
            progress_ms=task.progress_ms,
            commits=self.commits,
            failed_commits=self.failed_commits,
            commit_seconds=self._commit_seconds.snapshot(),
            commit_records=self._commit_records.snapshot(),
            restored_records=self.restored_records,
            restore_ms=self._restore_ms(),
            restore_remaining=restore_remaining if is_restoring else 0,
            behind_ms=_behind_ms(task, now_ms),
            waits_for=task.together.waits_for(),
            skew_ms=task.together.skew_ms(),
        )


class Shown(Protocol):
    """A task, as far as it is shown."""

    hop: Hop
    partition: int
    state: TaskState
    position: int
    committed: int | None
    inbox: Inbox
    uncommitted_records: int
    progress_ms: int | None
    chain: Chain | None
    timestamps: Timestamps | None
    source: TopicPartition
    together: Together


def _behind_ms(task: Shown, now_ms: int) -> int | None:
    """A quiet source has nothing that could be ahead of it."""
    chain = task.chain
    has_begun = chain is not None and chain.lateness.time_ms != NO_TIME_MS
    if task.progress_ms is None or not has_begun or task.together.source_state == IDLE:
        return None
    return now_ms - task.progress_ms


def _decided(task: Shown, surveyed: Surveyed) -> int:
    """Offsets that carry no record are decided as soon as nothing waits."""
    if task.inbox.records == 0 and surveyed.fetched is not None:
        return max(task.position, surveyed.fetched)
    return task.position
