"""`headrace reset` on a real broker: what it shows, what it deletes, and when it refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import GroupBusy, StateLocked, StateUnavailable
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.cli.reset import reset
from headrace.services.kafka.topics import prepare_topics
from headrace.services.settings import Settings
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import MakePipeline, record

PIPELINE = """
pipeline: {name}
source: {{topic: {name}.raw}}
operators:
  - reorder: {{grace: 30s, late: topic}}
  - deduplicate: {{by: id, id: key, interval: 1h}}
sink: {{topic: {name}.cleaned}}
"""
FOREVER = {"retention.ms": "-1"}


class Used(NamedTuple):
    """A pipeline that ran before."""

    file: Path
    spec: PipelineSpec
    kafka: SharedKafka
    folder: Path

    @property
    def clients(self) -> Clients:
        """Of its broker."""
        return self.kafka.clients

    def reset(self, *, yes: bool = False, cleaned: bool = False) -> None:
        """The command."""
        reset(
            self.file,
            yes=yes,
            cleaned=cleaned,
            bootstrap_servers=self.kafka.bootstrap_servers,
            state_folder=self.folder,
        )

    def topics(self) -> set[str]:
        """The pipeline's own among all that there are."""
        name = self.spec.pipeline
        return {
            topic.removeprefix(name) for topic in self.clients.topics() if topic.startswith(name)
        }


@pytest.fixture
def used(kafka: SharedKafka, tmp_path: Path) -> Used:
    """Topics with records, committed offsets, and state on disk."""
    name = fresh_name("used")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=name))
    spec = load_pipeline(file)
    raw = kafka.clients.make_topic(f"{name}.raw", 2, FOREVER)
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
    asyncio.run(prepare_topics(spec, settings))
    for topic in (raw, *(topic.name for topic in spec.topics())):
        records = [Record(b"%d" % n, b"v", 1_000, (), topic, n % 2, None) for n in range(6)]
        kafka.clients.produce(topic, records)
    asyncio.run(_commit(kafka, name, {TopicPartition(raw, 0): 3, TopicPartition(raw, 1): 2}))
    state = tmp_path / "state"
    (state / name / "state" / "0").mkdir(parents=True)
    (state / name / "state" / "0" / "CURRENT").write_text("rows")
    (state / "another").mkdir()
    return Used(file, spec, kafka, state)


async def _commit(kafka: SharedKafka, group: str, offsets: dict[TopicPartition, int]) -> None:
    async with AsyncExitStack() as stack:
        consumer = await _member(stack, kafka, group)
        consumer.assign(list(offsets))
        await consumer.commit(offsets)


async def _member(
    stack: AsyncExitStack, kafka: SharedKafka, group: str, *topics: str
) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        client_id="an-instance",
        enable_auto_commit=False,
    )
    await consumer.start()
    stack.push_async_callback(consumer.stop)
    return consumer


def test_without_yes_it_only_shows(used: Used, capsys: pytest.CaptureFixture[str]) -> None:
    name, before = used.spec.pipeline, used.topics()
    used.reset()
    assert capsys.readouterr().out.splitlines() == [
        "would be deleted:",
        f"  the offsets of the group {name} (partitions: 2)",
        f"  the topic {name}-state-changelog (records: 6)",
        f"  the topic {name}-deduplicate-repartition (records: 6)",
        f"  the topic {name}-deduplicate-changelog (records: 6)",
        f"  the folder {used.folder / name}",
        f"{name} starts again from the beginning of {name}.raw",
        f"{name}.cleaned keeps its records, and will have them once more",
        f"on other machines, delete the folder {name} in their state folder as well",
        "nothing was changed; to do it, add --yes",
    ]
    assert used.topics() == before
    assert len(used.clients.committed_offsets(name)) == 2
    assert (used.folder / name / "state" / "0" / "CURRENT").read_text() == "rows"


def test_with_yes_only_what_is_the_pipelines_own_memory_goes(
    used: Used, capsys: pytest.CaptureFixture[str]
) -> None:
    name = used.spec.pipeline
    used.reset(yes=True)
    assert capsys.readouterr().out.startswith("deleted:\n")
    assert used.topics() == {
        ".raw",
        ".cleaned",
        ".cleaned.progress",
        ".cleaned.late",
        ".cleaned.dead",
    }
    assert used.clients.committed_offsets(name) == {}
    assert [path.name for path in used.folder.iterdir()] == ["another"]
    assert len(used.clients.consume_all(f"{name}.cleaned")) == 6
    used.reset(yes=True)
    assert capsys.readouterr().out == f"{name} knows nothing yet; there is nothing to delete\n"


def test_the_cleaned_topic_goes_only_if_asked_for(used: Used) -> None:
    used.reset(yes=True, cleaned=True)
    assert used.topics() == {".raw", ".cleaned.late", ".cleaned.dead"}


def test_topics_that_were_deleted_can_be_made_again_at_once(used: Used) -> None:
    used.reset(yes=True)
    settings = Settings(bootstrap_servers=used.kafka.bootstrap_servers)
    assert len(asyncio.run(prepare_topics(used.spec, settings)).made) == 3


@pytest.mark.parametrize("yes", [False, True])
def test_it_refuses_while_an_instance_runs(used: Used, yes: bool) -> None:  # noqa: FBT001
    name, before = used.spec.pipeline, used.topics()

    async def refused() -> str:
        async with AsyncExitStack() as stack:
            consumer = await _member(stack, used.kafka, name, f"{name}.raw")
            await consumer.getone()
            with pytest.raises(GroupBusy) as caught:
                await asyncio.to_thread(used.reset, yes=yes)
            return str(caught.value)

    assert asyncio.run(refused()) == (
        f"the pipeline `{name}` is running (an-instance on 127.0.0.1); stop all its instances,"
        " and try again; one that has an instance id counts for 10s more"
    )
    assert used.topics() == before
    assert len(used.clients.committed_offsets(name)) == 2
    assert (used.folder / name).exists()


def test_a_folder_that_cannot_be_deleted_is_a_sentence(used: Used, tmp_path: Path) -> None:
    own = used.folder / used.spec.pipeline
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnavailable, match="cannot be deleted"):
        used.reset(yes=True)
    assert (tmp_path / "elsewhere" / "state" / "0" / "CURRENT").exists()


def test_a_folder_that_another_process_has_is_left_as_it_is(used: Used) -> None:
    name, before = used.spec.pipeline, used.topics()
    with lock_of_another(used.folder / name), pytest.raises(StateLocked, match="stop that one"):
        used.reset(yes=True)
    assert used.topics() == before
    assert len(used.clients.committed_offsets(name)) == 2
    assert (used.folder / name / "state" / "0" / "CURRENT").exists()
    used.reset(yes=True)
    assert not (used.folder / name).exists()


@contextmanager
def lock_of_another(folder: Path) -> Iterator[None]:
    """Have a folder held by another process, as by a sidecar that is about to join."""
    script = (
        "import sys; from pathlib import Path;"
        " from headrace.services.runtime.machine.folder import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


def test_a_reset_that_was_killed_leaves_no_database_in_part(
    used: Used, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = used.folder / used.spec.pipeline
    (own / "state" / "0" / "000004.log").write_text("rows")

    def killed(folder: Path) -> None:
        next(path for path in Path(folder).rglob("*") if path.is_file()).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        used.reset(yes=True)
    monkeypatch.undo()
    # No task looks for a database there.
    assert [path.name for path in own.iterdir()] == [".deleted"]
    used.reset(yes=True)
    assert not own.exists()
    assert not any("changelog" in topic for topic in used.topics())


def test_behind_a_reset_a_sidecar_starts_from_the_beginning(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 1h}", partitions=2)
    pipeline.produce(record(b"%d" % (n // 2), b"v", n, (), n // 2 % 2) for n in range(40))

    def run() -> None:
        # An instance with a name would stay in the group for a while, in case it comes back.
        sidecar = pipeline.start(instance_id="")
        pipeline.wait_until_done()
        assert sidecar.stop() == 0

    def is_reset() -> bool:
        with suppress(GroupBusy):
            reset(
                pipeline.file,
                yes=True,
                bootstrap_servers=pipeline.servers,
                state_folder=pipeline.state / "one",
            )
            return True
        return False

    run()
    pipeline.wait_until(is_reset, "the reset")
    assert list((pipeline.state / "one").iterdir()) == []
    run()
    once = Counter(b"%d" % n for n in range(20))
    assert Counter(one.key for one in pipeline.cleaned()) == once + once
