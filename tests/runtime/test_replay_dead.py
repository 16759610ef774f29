"""`headrace replay-dead` on a real broker: what goes back, byte for byte, and what does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from aiokafka.client import ConnectionGroup
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.dead_letter import (
    REPLAYS_HEADER,
    DeadLetter,
    dead_headers,
    read_dead,
    replay_headers,
)
from headrace.contracts.decision import Reason
from headrace.contracts.errors import GroupBusy, KafkaUnreachable, TopicRefused
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.admin.replay_dead import Choice, Fate, Tally, put_back
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.cli.replay_dead import replay_dead
from headrace.services.kafka.cluster import connected
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.settings import Settings
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.observe.conftest import logging_as_it_was
from tests.runtime.sidecar import MakePipeline, contents, record
from tests.runtime.test_outbox import cut_off

__all__ = ["logging_as_it_was"]

PIPELINE = """
pipeline: {name}
source: {{topic: {name}.raw}}
operators:
  - reorder: {{grace: 30s}}
  - deduplicate: {{by: id, id: value.id, interval: 1h}}
  - aggregate: {{function: count, window: {{kind: tumbling, size: 1h, grace: 10m}}}}
  - filter: {{where: value < 3}}
sink: {{topic: {name}.cleaned}}
"""
FOREVER = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
ALL = Choice(reason=None, replays_max=1)
AWKWARD: tuple[
    tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]], ...
] = (
    (b"key", b"\xff not UTF-8", 1_000, (("a", b"1"), ("a", None), ("", b""))),
    (None, None, 0, ()),
    (b"", b"", 32_503_680_000_000, (("headrace.reason", b"mine"),)),
    (None, b"x" * 900_000, 5, ()),
)


class Dying(NamedTuple):
    """A pipeline whose dead-letter topic has letters."""

    file: Path
    spec: PipelineSpec
    kafka: SharedKafka

    @property
    def clients(self) -> Clients:
        """Of its broker."""
        return self.kafka.clients

    @property
    def source(self) -> str:
        """Where records come from."""
        return self.spec.source.topic

    def die(
        self,
        records: list[Record],
        reason: Reason = Reason.UNDECODABLE,
        operator: str = "intake",
        partition: int = 0,
    ) -> None:
        """Write letters, as the pipeline would."""
        letters = [DeadLetter(record, operator, reason, "why") for record in records]
        dead = [
            one.record._replace(headers=dead_headers(one), partition=partition) for one in letters
        ]
        self.clients.produce(self.spec.dead.topic, dead)

    def replay(self, choice: Choice = ALL, *, really: bool = True) -> dict[tuple[Fate, str], int]:
        """Put letters back."""
        return dict(asyncio.run(self.replaying(choice, really=really)))

    async def replaying(
        self,
        choice: Choice = ALL,
        *,
        really: bool = True,
        when_read: Callable[[], object] = lambda: None,
    ) -> Tally:
        """The same, where an event loop runs; the first fetch may have read nothing."""

        def tell(read: int, _total: int) -> None:
            if read:
                when_read()

        settings = Settings(bootstrap_servers=self.kafka.bootstrap_servers)
        return await put_back(self.spec, settings, choice, tell, really=really)

    def back(self, count: int) -> list[Record]:
        """Return the source's records, once so many are there; a commit shows a moment later."""
        return self.clients.consume(self.source, count)


@pytest.fixture
def dying(kafka: SharedKafka, tmp_path: Path) -> Dying:
    return dying_on(kafka, tmp_path)


def dying_on(kafka: SharedKafka, tmp_path: Path) -> Dying:
    name = fresh_name("dying")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=name))
    spec = load_pipeline(file)
    kafka.clients.make_topic(spec.source.topic, 3, FOREVER)
    kafka.clients.make_topic(spec.dead.topic, 2, FOREVER)
    return Dying(file, spec, kafka)


def _records(dying: Dying, count: int, partition: int = 0) -> list[Record]:
    return [
        Record(b"%d" % n, b"value", 1_000 + n, (("n", b"%d" % n),), dying.source, partition, n)
        for n in range(count)
    ]


def test_letters_go_back_as_they_came_and_only_once(dying: Dying) -> None:
    records = [
        Record(key, value, timestamp_ms, headers, dying.source, index % 3, index)
        for index, (key, value, timestamp_ms, headers) in enumerate(AWKWARD)
    ]
    dying.die(records)
    assert dying.replay() == {(Fate.BACK, "undecodable"): 4}
    expected = [one._replace(headers=(*one.headers, (REPLAYS_HEADER, b"1"))) for one in records]
    assert Counter(one._replace(offset=None) for one in dying.back(4)) == Counter(
        one._replace(offset=None) for one in expected
    )
    assert dying.replay() == {}
    assert len(dying.back(4)) == 4
    dying.die(_records(dying, 2))
    assert dying.replay() == {(Fate.BACK, "undecodable"): 2}
    assert len(dying.back(6)) == 6


def test_looking_changes_nothing(dying: Dying) -> None:
    dying.die(_records(dying, 3))
    for _ in range(2):
        assert dying.replay(really=False) == {(Fate.BACK, "undecodable"): 3}
    assert dying.back(0) == []
    assert dying.clients.committed_offsets(f"{dying.spec.pipeline}.replay-dead") == {}


def test_a_reason_alone_leaves_the_others_for_later(dying: Dying) -> None:
    for start in (0, 2, 4):
        dying.die(_records(dying, 6)[start : start + 1])
        dying.die(_records(dying, 6)[start + 1 : start + 2], Reason.FUTURE_TIMESTAMP)
    only = Choice(Reason.FUTURE_TIMESTAMP, replays_max=1)
    assert dying.replay(only) == {(Fate.BACK, "future-timestamp"): 3}
    assert dying.replay(only) == {}
    dying.die(_records(dying, 8)[7:], Reason.FUTURE_TIMESTAMP)
    assert dying.replay() == {(Fate.BACK, "undecodable"): 3, (Fate.BACK, "future-timestamp"): 1}
    assert dying.replay() == {}
    assert [one.key for one in dying.back(7)] == [b"1", b"3", b"5", b"0", b"2", b"4", b"7"]


def test_a_record_that_dies_again_and_again_does_not_go_round_for_ever(dying: Dying) -> None:
    again = [one._replace(headers=replay_headers(one)) for one in _records(dying, 3)]
    dying.die([*again, *_records(dying, 1)])
    assert dying.replay(really=False) == {
        (Fate.OFTEN, "undecodable"): 3,
        (Fate.BACK, "undecodable"): 1,
    }
    assert dying.replay() == {(Fate.OFTEN, "undecodable"): 3, (Fate.BACK, "undecodable"): 1}
    assert dying.replay() == {(Fate.OFTEN, "undecodable"): 3}
    twice = Choice(reason=None, replays_max=2)
    assert dying.replay(twice) == {(Fate.BACK, "undecodable"): 3}
    assert dying.replay(twice) == {}
    headers = [(REPLAYS_HEADER, b"1"), *[(REPLAYS_HEADER, b"2")] * 3]
    assert [one.headers[-1] for one in dying.back(4)] == headers


def test_letters_that_are_not_ours_or_have_no_source_are_left_alone(dying: Dying) -> None:
    one = _records(dying, 1)[0]
    streams = [(name, value) for name, value in dead_headers(DeadLetter(one, "", None, "why"))][:-2]
    dying.clients.produce(dying.spec.dead.topic, [one, one._replace(headers=tuple(streams))])
    dying.die([one._replace(topic="another"), one._replace(partition=3)])
    dying.die([one._replace(offset=None)], operator="deduplicate")
    dying.die([one], operator="filter")
    dying.die([one], operator="aggregate")
    assert dying.replay() == {
        (Fate.FOREIGN, ""): 2,
        (Fate.ELSEWHERE, "undecodable"): 2,
        (Fate.MADE, "undecodable"): 2,
        (Fate.BACK, "undecodable"): 1,
    }
    assert len(dying.back(1)) == 1


def test_a_letter_of_the_second_hop_goes_back_to_where_that_hop_reads(dying: Dying) -> None:
    second = dying.spec.hops()[1].topic
    dying.clients.make_topic(second, 5, FOREVER)
    dying.die([_records(dying, 1, partition=4)[0]._replace(topic=second)], operator="deduplicate")
    assert dying.replay() == {(Fate.BACK, "undecodable"): 1}
    assert [one.partition for one in dying.clients.consume(second, 1)] == [4]


def test_many_letters_go_back_in_their_order(dying: Dying) -> None:
    records = [one._replace(value=b"v" * 400) for one in _records(dying, 20_000, partition=2)]
    dying.die(records[:10_000])
    dying.die(records[10_000:], partition=1)
    assert dying.replay() == {(Fate.BACK, "undecodable"): 20_000}
    back = [int(one.key or b"") for one in dying.back(20_000)]
    assert sorted(back) == list(range(20_000))
    assert [n for n in back if n < 10_000] == list(range(10_000))
    assert [n for n in back if n >= 10_000] == list(range(10_000, 20_000))


def test_a_second_replay_stops_the_first_and_each_letter_goes_back_once(dying: Dying) -> None:
    dying.die([one._replace(value=b"v" * 1_000) for one in _records(dying, 10_000)])
    begun, done = Event(), Event()

    def wait() -> None:
        begun.set()
        assert done.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asyncio.run, dying.replaying(when_read=wait))
        assert begun.wait(60)
        (count,) = dying.replay().values()
        assert 0 < count < 10_000
        done.set()
        with pytest.raises(GroupBusy, match="another replay of these letters began meanwhile"):
            first.result()
    assert Counter(int(one.key or b"") for one in dying.back(10_000)) == Counter(range(10_000))
    assert dying.replay() == {}


def test_a_replay_that_is_interrupted_is_taken_up_again(dying: Dying) -> None:
    dying.die([one._replace(value=b"v" * 1_000) for one in _records(dying, 10_000)])

    async def interrupted() -> None:
        reading = asyncio.Event()
        running = asyncio.create_task(dying.replaying(when_read=reading.set))
        begun = asyncio.create_task(reading.wait())
        await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    (count,) = dying.replay().values()
    assert 0 < count < 10_000
    assert Counter(int(one.key or b"") for one in dying.back(10_000)) == Counter(range(10_000))


def test_a_replay_that_loses_a_connection_says_so_and_the_next_goes_on(
    dying: Dying, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying.die(_records(dying, 3))
    tell_offsets = Outbox.tell_offsets

    async def lose_connections(outbox: Outbox, offsets: Any) -> None:
        monkeypatch.undo()
        await cut_off(outbox, *ConnectionGroup)
        await tell_offsets(outbox, offsets)

    monkeypatch.setattr(Outbox, "tell_offsets", lose_connections)
    with pytest.raises(KafkaUnreachable, match="run the command again"):
        dying.replay()
    assert dying.replay() == {(Fate.BACK, Reason.UNDECODABLE): 3}
    assert [one.key for one in dying.back(3)] == [b"0", b"1", b"2"]


def test_the_command_says_what_it_did(dying: Dying, capsys: pytest.CaptureFixture[str]) -> None:
    again = [one._replace(headers=replay_headers(one)) for one in _records(dying, 1)]
    dying.die([*again, *_records(dying, 2)])
    dying.die(_records(dying, 1), Reason.NEGATIVE_TIMESTAMP)
    servers = dying.kafka.bootstrap_servers
    replay_dead(dying.file, bootstrap_servers=servers)
    back = "put back: 3 (1 negative-timestamp, 2 undecodable)"
    often = "put back often enough before: 1 (1 undecodable)"
    assert capsys.readouterr().out.splitlines() == [
        f"would be {back}",
        often,
        "nothing was changed; to put them back, add --yes",
    ]
    replay_dead(dying.file, yes=True, bootstrap_servers=servers)
    assert capsys.readouterr().out.splitlines() == [back, often]
    replay_dead(dying.file, yes=True, bootstrap_servers=servers)
    assert capsys.readouterr().out.splitlines() == [often]
    replay_dead(dying.file, yes=True, max_replays=2, bootstrap_servers=servers)
    assert capsys.readouterr().out.splitlines() == ["put back: 1 (1 undecodable)"]
    replay_dead(dying.file, yes=True, bootstrap_servers=servers)
    dead = dying.spec.dead.topic
    assert capsys.readouterr().out == f"there are no letters in {dead} that were not dealt with\n"


def test_a_running_sidecars_dead_letters_come_back_to_it(
    make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = make_pipeline("deduplicate: {by: key+id, id: value.id, interval: 1h}")
    poison = record(b"k", b"no json", 1_000, (("h", b"1"), ("h", None)))
    pipeline.produce([poison, record(b"k", b'{"id": "1"}', 1_500)])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    replay_dead(pipeline.file, yes=True, bootstrap_servers=pipeline.servers)
    pipeline.wait_until(lambda: len(pipeline.beside("dead")) == 2, "a second death")
    again = read_dead(pipeline.beside("dead")[-1])
    assert again is not None
    headers = (*poison.headers, (REPLAYS_HEADER, b"1"))
    assert contents([again.record]) == contents([poison._replace(headers=headers)])
    replay_dead(pipeline.file, yes=True, bootstrap_servers=pipeline.servers)
    assert capsys.readouterr().out.splitlines() == [
        "put back: 1 (1 undecodable)",
        "put back often enough before: 1 (1 undecodable)",
    ]
    assert len(pipeline.cleaned()) == 1
    assert sidecar.stop() == 0


def test_a_dead_letter_topic_that_nobody_made_has_no_letters(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=fresh_name("healthy")))
    assert Dying(file, load_pipeline(file), kafka).replay() == {}


def test_a_replay_without_a_source_is_refused_before_letters_count_as_dealt_with(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=fresh_name("astray")))
    astray = Dying(file, load_pipeline(file), kafka)
    kafka.clients.make_topic(astray.spec.dead.topic, 1, FOREVER)
    astray.die(_records(astray, 1))
    with pytest.raises(TopicRefused, match="does not exist, so no letter can go back"):
        astray.replay()
    kafka.clients.make_topic(astray.source, 1, FOREVER)
    assert astray.replay() == {(Fate.BACK, "undecodable"): 1}


def test_the_place_is_kept_with_the_groups_offsets(dying: Dying) -> None:
    dying.die(_records(dying, 3))
    dying.replay(Choice(Reason.UNDECODABLE, replays_max=1))

    async def committed() -> list[OffsetAndMetadata]:
        settings = Settings(bootstrap_servers=dying.kafka.bootstrap_servers)
        async with connected(settings) as cluster:
            place = TopicPartition(dying.spec.dead.topic, 0)
            found = await cluster.committed(f"{dying.spec.pipeline}.replay-dead", [place])
            return list(found.values())

    assert asyncio.run(committed()) == [OffsetAndMetadata(0, '{"undecodable": 3}')]
