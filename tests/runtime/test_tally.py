"""How far a partition is behind the clock, and when that says nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from headrace.contracts.hops import Hop
from headrace.contracts.origin import AT_END, AWAKE, IDLE
from headrace.contracts.pipeline import PipelineSpec
from headrace.services.intake.timestamps import Timestamps
from headrace.services.observe.metrics import Metrics
from headrace.services.observe.snapshot import TaskState, WorkerSnapshot
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.runtime.input.inbox import Inbox
from headrace.services.runtime.input.survey import UNSEEN
from headrace.services.runtime.task import tally
from headrace.services.runtime.task.tally import Tally
from headrace.services.runtime.task.task import Task
from headrace.services.runtime.time.skew import Skew
from headrace.services.runtime.time.together import Together
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.runtime.sidecar import record
from tests.runtime.working import working

SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "clicks",
        "source": {"topic": "raw"},
        "operators": [{"reorder": {"grace": "2s"}}],
        "sink": {"topic": "cleaned"},
    }
)
(HOP,) = SPEC.hops()


def chain_of(hop: Hop) -> Chain:
    return Chain(hop.operators, Overlay(MemoryStore(), "clicks").view)


@dataclass
class Running:
    """A task that has committed up to 8 s."""

    hop: Hop = HOP
    partition: int = 0
    state: TaskState = "running"
    position: int = 1
    committed: int | None = 1
    inbox: Inbox = field(default_factory=lambda: Inbox(lambda: None))
    uncommitted_records: int = 0
    progress_ms: int | None = 8_000
    chain: Chain | None = field(default_factory=lambda: chain_of(HOP))
    timestamps: Timestamps | None = None
    source: TopicPartition = field(default_factory=lambda: TopicPartition("raw", 0))
    together: Together = field(
        default_factory=lambda: Together(Skew(1_000, lambda: True), HOP, partition=0)
    )

    def behind_ms(self, now_ms: int) -> int | None:
        """How far it is behind a clock."""
        return Tally().snapshot(self, UNSEEN, 0, now_ms).behind_ms


def test_it_is_as_far_behind_the_clock_as_progress_is_while_it_is_not_idle() -> None:
    task = Running()
    assert task.chain is not None
    assert task.behind_ms(60_000) is None, "no record ever came"
    task.chain.process(Batch.of([record(b"a", b"1", 10_000)]))
    assert task.behind_ms(60_000) == 52_000
    for state, behind_ms in ((IDLE, None), (AT_END, 52_000), (AWAKE, 52_000)):
        task.together.moved(task.chain, state)
        assert task.behind_ms(60_000) == behind_ms
    task.progress_ms = None
    assert task.behind_ms(60_000) is None, "nothing is committed"


def test_only_a_task_that_is_opened_and_not_restored_yet_spends_time_restoring() -> None:
    clock = SimpleNamespace(at_s=0.0)
    clock.monotonic = lambda: clock.at_s

    def restore_ms_at(at_s: float) -> int:
        clock.at_s = at_s
        return counts.snapshot(Running(), UNSEEN, 0, now_ms=0).restore_ms

    with patch.object(tally, "time", clock):
        counts = Tally()
        assert restore_ms_at(60.0) == 0, "it rests, or is closed and not forgotten yet"
        counts.opened()
        assert restore_ms_at(65.0) == 5_000
        counts.restored()
        assert restore_ms_at(99.0) == 5_000


class Failing(Task):
    """A task that fails twice: before its state is restored, and in its last commit."""

    is_opened_again = False

    async def _open(self, opened: AsyncExitStack) -> None:
        del opened
        if self.is_opened_again:
            self.tally.restored()
            self.close()
        self.is_opened_again = True
        raise KafkaError


def test_the_failed_commit_of_a_task_that_ends_is_counted_and_no_other_failure(
    tmp_path: Path,
) -> None:
    async def page() -> list[str]:
        async with working(SPEC, tmp_path) as work:
            worker = WorkerSnapshot("clicks", "one", "running", 0.0, 0.0)
            work.metrics = Metrics(lambda: worker)
            await Failing(work, HOP, 0).run()
            return work.metrics.text().decode().splitlines()

    (line,) = (one for one in asyncio.run(page()) if one.startswith("headrace_failed_commits_tot"))
    assert line.endswith("} 1")
