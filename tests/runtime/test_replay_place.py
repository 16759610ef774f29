"""The place of a replay in a partition of dead letters: read, kept, and found deleted."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import OffsetAndMetadata

from headrace.contracts.record import Record
from headrace.services.admin import replay_dead
from headrace.services.admin.replay_place import Place
from headrace.services.kafka.cluster import Ends, connected
from headrace.services.settings import Settings
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record
from tests.runtime.test_replay_dead import ALL

BY_REPLAYS, BY_TOPIC = {"<2": 8, "failed<1": 9}, {"@a.b": 8, "<1@c": 9}


@pytest.mark.parametrize(
    ("committed", "place"),
    [
        (None, Place(4, 9, {})),
        (OffsetAndMetadata(6, ""), Place(6, 9, {})),
        (OffsetAndMetadata(6, '{"undecodable": 8}'), Place(6, 9, {"undecodable": 8})),
        (OffsetAndMetadata(2, ""), Place(4, 9, {})),
        (OffsetAndMetadata(10, '{"undecodable": 12}'), Place(4, 9, {})),
        (OffsetAndMetadata(6, '{"undecodable": 12}'), Place(4, 9, {})),
        (OffsetAndMetadata(6, "set by hand"), Place(6, 9, {})),
        (OffsetAndMetadata(6, "[1]"), Place(6, 9, {})),
        (OffsetAndMetadata(6, '{"<2": 8, "failed<1": 9, "<": 7}'), Place(6, 9, BY_REPLAYS)),
        (OffsetAndMetadata(6, '{"@a.b": 8, "<1@c": 9, "": 7, "@": 7}'), Place(6, 9, BY_TOPIC)),
    ],
)
def test_a_place_is_read_from_a_commit(committed: OffsetAndMetadata | None, place: Place) -> None:
    assert Place.read(committed, Ends(4, 9)) == place


def test_a_place_that_all_reasons_have_passed_is_one_number() -> None:
    place = Place(4, 9, {"undecodable": 6, "no-window": 9})
    place.advance(7, *ALL)
    assert place.written() == OffsetAndMetadata(7, '{"no-window": 9}')
    place.advance(9, *ALL)
    assert place.written() == OffsetAndMetadata(9, "")


def test_letters_deleted_meanwhile_do_not_hide_those_behind_them(kafka: SharedKafka) -> None:
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
    topic = kafka.clients.make_topic(f"{fresh_name('letters')}.dead", 1)
    kafka.clients.produce(topic, [record(b"k", b"%d" % number, 0) for number in range(5)])

    async def read() -> list[Record]:
        async with connected(settings) as cluster:
            place = Place.read(None, (await cluster.ends(topic))[0])
            await cluster.delete_records(topic, {0: 3})
        letters = replay_dead._letters(  # noqa: SLF001 - as a replay reads them
            settings, topic, {0: place}, lambda _read, _total: None
        )
        return [one async for _, some, _ in letters for one in some]

    assert [one.value for one in asyncio.run(read())] == [b"3", b"4"]
