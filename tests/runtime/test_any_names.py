"""A dead record whose headers have names that are no text goes back as it came."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from aiokafka.consumer import fetcher

from headrace.contracts.dead_letter import REPLAYS_HEADER
from headrace.contracts.record import Record
from headrace.services.admin.replay_dead import Fate
from headrace.services.runtime.input.fetched import Fetched, Records
from tests.kafka import clients
from tests.kafka.fixtures import SharedKafka
from tests.runtime.test_replay_dead import dying_on


def test_names_that_are_no_text_go_back_with_those_that_are(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    dying = dying_on(kafka, tmp_path)
    names = ("plain", "a\udcff", "\u00e9")
    records = [
        Record(b"k", b"%d" % at, 1_000 + at, ((name, b"1"),), dying.source, 0, at)
        for at, name in enumerate(names)
    ]
    dying.die(records)
    assert dying.replay() == {(Fate.BACK, "undecodable"): len(names)}
    with (
        patch.object(clients, "_record", lambda one: one),
        patch.object(fetcher, "PartitionRecords", Records),
        patch.object(fetcher, "MemoryRecords", Fetched),
    ):
        back = dying.back(len(names))
    assert [(one.value, one.headers) for one in back] == [
        (one.value, (*one.headers, (REPLAYS_HEADER, b"1"))) for one in records
    ]
