"""One sidecar's run over a real broker: what it is sent, how it is stopped, what it must leave."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import BufferFull, YourFault
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record, offset_of
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.kafka.cluster import Cluster
from headrace.services.kafka.new_topic import NewTopic
from tests.conformance.sidecar import outputs, releases
from tests.conformance.sidecar.groups import OFFSET_HEADER, PLACE_HEADER, Group, Share
from tests.conformance.sidecar.process import Sidecar
from tests.kafka.clients import Clients

_STALLS_AFTER_S = 180.0
_ASK_AGAIN_S = 0.05
_SETTINGS = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""A vector's timestamps are of any time."""
_LIVES = 3
"""How often a sidecar starts that is stopped on the way."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How sidecars run."""

    commit_records: int | None = None
    """Commit after so many records; by time where nobody says."""
    restarts: bool = False
    """Stop after a third of the input and again after two, the second time without the disk."""


class Broker(NamedTuple):
    """Where the topics are."""

    cluster: Cluster
    clients: Clients
    servers: str


class TrialError(Exception):
    """The sidecar did not do what every sidecar must, so there is nothing to compare."""


class Trial:
    """One group's sidecar."""

    def __init__(self, group: Group, source: str, folder: Path) -> None:
        """Write the pipeline down; its folder is made."""
        folder.mkdir()
        self.group = group
        self._source = source
        self._folder = folder
        self._file = folder / "pipeline.yaml"
        self._name = f"conformance-{source}"
        document = {
            "pipeline": self._name,
            "source": {"topic": source},
            "operators": group.operators,
            "sink": {"topic": f"{source}.cleaned"},
        }
        self._file.write_text(yaml.safe_dump(document, sort_keys=False))

    async def run(self, broker: Broker, manner: Manner) -> list[list[str]]:
        """The disagreements of each share."""
        source = NewTopic(self._source, len(self.group.shares), _SETTINGS)
        await broker.cluster.make([source], None)
        try:
            cleaned = await self._run(broker, manner)
        except TrialError as problem:
            return [[str(problem)] for _ in self.group.shares]
        return [
            list(self._disagreements(share, cleaned[partition]))
            for partition, share in enumerate(self.group.shares)
        ]

    def _disagreements(self, share: Share, cleaned: Sequence[Record]) -> Iterator[str]:
        if self.group.header == PLACE_HEADER:
            return releases.disagreements(share, cleaned)
        return outputs.disagreements(share, cleaned)

    async def _run(self, broker: Broker, manner: Manner) -> list[list[Record]]:
        error = self.group.error
        if error is None:
            spec = load_pipeline(self._file)
            lives = _LIVES if manner.restarts else 1
            for life in range(lives):
                await self._live(broker, manner, spec, (life, lives))
            return await self._cleaned(broker, spec)
        await self._send(broker, 0, 1)
        if error["phase"] != "process":
            await self._fail(broker, manner, YourFault.exit_code)
            return [[] for _ in self.group.shares]
        for _ in range(_LIVES if manner.restarts else 1):
            await self._fail(broker, manner, BufferFull.exit_code)
            await self._check_committed(broker, error["after_input"])
        return await self._cleaned(broker, load_pipeline(self._file))

    async def _live(
        self, broker: Broker, manner: Manner, spec: PipelineSpec, part: tuple[int, int]
    ) -> None:
        """Send a part of the input, run until all that was sent is committed, and stop."""
        life, lives = part
        if not await self._send(broker, life, lives):
            return
        if life > 1:
            shutil.rmtree(self._folder / "state", ignore_errors=True)
        sidecar = self._start(broker, manner)
        try:
            ends = {
                TopicPartition(self._source, partition): _cut(share, life + 1, lives)
                for partition, share in enumerate(self.group.shares)
            }
            await self._until_committed(broker, sidecar, ends)
            for hop in spec.hops()[1:]:
                await self._until_committed(broker, sidecar, await _ends(broker, hop.topic))
        finally:
            sidecar.terminate()
            code = await sidecar.ended()
        if code != 0:
            raise _ended(sidecar, code, "after it was told to stop")

    def _start(self, broker: Broker, manner: Manner) -> Sidecar:
        environment = {
            "HEADRACE_BOOTSTRAP_SERVERS": broker.servers,
            "HEADRACE_STATE_FOLDER": str(self._folder / "state"),
        }
        if manner.commit_records is not None:
            environment["HEADRACE_COMMIT_RECORDS_MAX"] = str(manner.commit_records)
        believes = self.group.header == OFFSET_HEADER
        log = self._folder / "log"
        return Sidecar(self._file, log, environment, believes_offsets=believes)

    async def _send(self, broker: Broker, life: int, lives: int) -> int:
        """How many records this part of the input has, all of them sent."""
        records = [
            record
            for partition, share in enumerate(self.group.shares)
            for record in share.records(self._source, partition, self.group.header)[
                _cut(share, life, lives) : _cut(share, life + 1, lives)
            ]
        ]
        await asyncio.to_thread(broker.clients.produce, self._source, records)
        return len(records)

    async def _until_committed(
        self, broker: Broker, sidecar: Sidecar, ends: Mapping[TopicPartition, int]
    ) -> None:
        """Wait, however long it takes, as long as more is committed than before."""
        reached: dict[TopicPartition, int] = {}
        moved_at_s = time.monotonic()
        while True:
            committed = await broker.cluster.committed(self._name, ends)
            now = {place: found.offset for place, found in committed.items()}
            if now != reached:
                reached, moved_at_s = now, time.monotonic()
            missing = {place: end for place, end in ends.items() if now.get(place, 0) < end}
            if not missing:
                return
            if sidecar.exit_code is not None:
                raise _ended(sidecar, sidecar.exit_code, f"and should have committed {missing}")
            if time.monotonic() - moved_at_s > _STALLS_AFTER_S:
                message = f"stands still before {missing}: {sidecar.last_words()}"
                raise TrialError(message)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _fail(self, broker: Broker, manner: Manner, exit_code: int) -> None:
        """Run until it ends by itself, as it must."""
        sidecar = self._start(broker, manner)
        code = await sidecar.ended()
        if code != exit_code:
            raise _ended(sidecar, code, f"and should have ended with {exit_code}")

    async def _check_committed(self, broker: Broker, place: int) -> None:
        """Whether everything before the record that cannot be held was committed, and no more."""
        source = TopicPartition(self._source, 0)
        found = (await broker.cluster.committed(self._name, [source])).get(source)
        offset, want = 0 if found is None else found.offset, self.group.shares[0].offset_of(place)
        if offset != want:
            message = f"failed with offset {offset} committed, not {want} (input {place})"
            raise TrialError(message)

    async def _cleaned(self, broker: Broker, spec: PipelineSpec) -> list[list[Record]]:
        """Read the cleaned topic, by partition, once no transaction is open any more."""
        dead = await _ends(broker, spec.dead.topic)
        if dead:
            message = f"records went dead, and a vector has none that cannot be read: {dead}"
            raise TrialError(message)
        cleaned: list[list[Record]] = [[] for _ in self.group.shares]
        for record in await asyncio.to_thread(broker.clients.consume_all, spec.sink.topic):
            cleaned[record.partition].append(record)
        return cleaned


def _cut(share: Share, life: int, lives: int) -> int:
    """Up to which of a share's records somebody has lived."""
    return len(share.places) * life // lives


async def _ends(broker: Broker, topic: str) -> dict[TopicPartition, int]:
    """The offset behind the last record of each partition; markers of transactions do not count."""
    records = await asyncio.to_thread(broker.clients.consume_all, topic)
    return {TopicPartition(topic, one.partition): offset_of(one) + 1 for one in records}


def _ended(sidecar: Sidecar, code: int | None, what: str) -> TrialError:
    how = "did not end" if code is None else f"ended with exit code {code}"
    return TrialError(f"{how} {what}: {sidecar.last_words()}")
