"""A broker, topics, two workers and a third that comes for a visit."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Self

import yaml
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
)

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import offset_of
from headrace.services.broker.embedded import EmbeddedBroker
from tests.kafka.clients import Clients
from tests.kill.disk import Disks
from tests.kill.kept import NEVER_FULL
from tests.kill.moments import Moments
from tests.kill.pipelines import RAW, Case
from tests.kill.workers import Worker

_SESSION_S = 2.5
_NAP_S = 2.2
_TRANSACTION_S = 1.5
"""The broker looks every half second which transactions have lasted too long."""
_ASK_AGAIN_S = 0.2
_CHANGED_WITHIN_S = 240.0
_FAR_FUTURE_MS = str((1 << 63) - 1)
_NOT_YET = (
    CoordinatorLoadInProgressError,
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
)
"""Errors of a broker that has just started, or is about to."""
BROKER = {
    # A zombie is one only when the group has given it up: let that be soon.
    "group.min.session.timeout.ms": "1000",
    # Changelogs are compacted while the run lasts, so that a restore meets what compaction left.
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "4000",
}


class World:
    """All that a run needs; leave it, and nothing of it runs any more."""

    def __init__(
        self,
        folder: Path,
        case: Case,
        partitions: int,
        guarantee: str,
        *,
        broker: EmbeddedBroker | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Everything stays in this folder; `broker` is not started, `more` are settings."""
        self.folder = folder
        self.case = case
        self.partitions = partitions
        self.session_s = _SESSION_S
        self.nap_s = _NAP_S
        self.broker_kills = 0
        self.broker = broker or EmbeddedBroker(folder / "kafka", properties=BROKER)
        self.data = self.broker.brokers[0].folder / "data"
        """The broker's own files."""
        self.moments = Moments(self.data, case.spec, partitions)
        self.disks = Disks(case.spec, partitions, self._committed)
        self.exactly_once = guarantee == "exactly-once"
        pipeline = written(case.spec, folder)
        settings = {
            "HEADRACE_BOOTSTRAP_SERVERS": self.broker.bootstrap_servers,
            "HEADRACE_GUARANTEE": guarantee,
            "HEADRACE_SESSION_TIMEOUT": _milliseconds(_SESSION_S),
            "HEADRACE_HEARTBEAT_INTERVAL": "300ms",
            "HEADRACE_TRANSACTION_TIMEOUT": _milliseconds(_TRANSACTION_S),
            "HEADRACE_MEMORY": "256MiB",
            "HEADRACE_LOG_FORMAT": "json",
            **(more or {}),
        }

        def worker(name: str, commit_interval: str) -> Worker:
            own = {"HEADRACE_COMMIT_INTERVAL": commit_interval}
            return Worker(name, folder, pipeline, settings | own)

        # One is mostly in an open transaction when it is struck, the other mostly in a commit.
        self.workers = [worker("worker-0", "600ms"), worker("worker-1", "30ms")]
        self.guest = worker("guest", "150ms")

    @property
    def everybody(self) -> list[Worker]:
        """All workers, the guest included."""
        return [*self.workers, self.guest]

    @property
    def clients(self) -> Clients:
        """Clients of the broker."""
        return Clients(self.broker.plain_servers)

    def __enter__(self) -> Self:
        """Start the broker, and make the source; the workers are still to be started."""
        self.broker.start()
        settings = {"retention.ms": "-1", "message.timestamp.after.max.ms": _FAR_FUTURE_MS}
        self.clients.make_topic(RAW, self.partitions, settings)
        for hop in self.case.spec.hops():
            if hop.end is not None:
                between = hop.end.topic
                kept = between.settings() | NEVER_FULL
                self.clients.make_topic(between.name, self.partitions, kept)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything at once."""
        for worker in self.everybody:
            worker.kill()
        self.broker.kill()

    def start_workers(self) -> None:
        """Start those two that shall always run."""
        for worker in self.workers:
            worker.start()

    def stop_workers(self) -> None:
        """Stop all, politely."""
        for worker in self.everybody:
            worker.stop()

    def change(self, spec: PipelineSpec) -> dict[tuple[str, int], int]:
        """Stop all workers, write another pipeline, and start; the first offsets that meet it.

        Every partition runs before, so a polite stop leaves no transaction behind, and the group's
        offsets are what the old pipeline has met.
        """
        self.wait_until_running(_CHANGED_WITHIN_S)
        self.stop_workers()
        met = self.clients.committed_offsets(self.case.spec.pipeline)
        self.case = self.case._replace(spec=spec)
        written(spec, self.folder)
        self.start_workers()
        return met

    def restart_broker(self) -> None:
        """Kill the broker, and start it again."""
        self.broker_kills += 1
        self.broker.kill()
        self.broker.start()

    def wait_until_reading(
        self, within_s: float, partitions: Collection[int] | None = None
    ) -> None:
        """Until every partition of the source, or each of these, was committed once."""
        expected = range(self.partitions) if partitions is None else partitions
        sources = [(RAW, partition) for partition in expected]
        self._wait(lambda: set(sources) <= self._committed().keys(), "the first commits", within_s)

    def wait_until_drained(self, within_s: float) -> None:
        """Until all that can be read was read, hop by hop, and committed; and who owns it has it.

        A quiet partition has nothing to be read, and its owner may still be about to restore it.
        """
        for hop in self.case.spec.hops():
            # Records that were deleted from a topic between two hops had been read.
            records = self.clients.consume_all(hop.topic)
            last = {(hop.topic, record.partition): offset_of(record) for record in records}
            self._wait(partial(self._is_past, last), f"the end of {hop.topic}", within_s)
        self.wait_until_running(within_s)

    def wait_until_running(self, within_s: float) -> None:
        """Until every partition of every hop runs at somebody."""
        topics = [hop.topic for hop in self.case.spec.hops()]
        places = {f"{topic}/{number}" for topic in topics for number in range(self.partitions)}
        self._wait(lambda: self._running() >= places, "all partitions to run", within_s)

    def _running(self) -> set[str]:
        return set().union(*(worker.running() for worker in self.everybody))

    def _is_past(self, last: Mapping[tuple[str, int], int]) -> bool:
        committed = self._committed()
        return all(committed.get(place, 0) > offset for place, offset in last.items())

    def _committed(self) -> dict[tuple[str, int], int]:
        try:
            return self.clients.committed_offsets(self.case.spec.pipeline)
        except _NOT_YET:
            return {}  # a broker that has just started does not know its groups yet

    def _wait(self, is_so: Callable[[], bool], what: str, within_s: float) -> None:
        give_up_at = time.monotonic() + within_s
        while not is_so():
            for worker in self.workers:
                worker.look()
                worker.start()
            if time.monotonic() > give_up_at:
                message = f"waited {within_s:.0f} s in vain for {what}"
                raise TimeoutError(message)
            time.sleep(_ASK_AGAIN_S)


def _milliseconds(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms"


def written(spec: PipelineSpec, folder: Path) -> Path:
    """A pipeline as a file, as a user would have it."""
    file = folder / "pipeline.yaml"
    fields = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    file.write_text(yaml.safe_dump(fields, sort_keys=False))
    return file
