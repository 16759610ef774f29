"""Values with registered schemas, on a real broker, beside a registry that speaks HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contracts.registered import (
    CLICK_AVRO,
    CLICK_JSON,
    avro,
    click_file,
    framed,
    message_of,
    protobuf,
    serialized,
)
from tests.runtime.registry_server import PASSWORD, USER, RegistryServer, registry_server
from tests.runtime.sidecar import MakePipeline, record

DEDUPLICATE = "deduplicate: {by: key+id, id: value.id, interval: 1h}"
SOURCE = "values: registry, timestamp: value.at"
AWAY = "the schema registry does not answer"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def click(number: int, click_id: str, at_ms: int) -> bytes:
    return avro(number, CLICK_AVRO, {"id": click_id, "at": at_ms})


def test_ids_and_times_are_read_by_the_schema_that_a_value_names(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    by_avro = registry.register("clicks-value", CLICK_AVRO)
    by_json = registry.register("clicks-value", CLICK_JSON, "JSON")
    file = click_file()
    by_protobuf = registry.register("clicks-value", serialized(file), "PROTOBUF")
    message = message_of(file, "web.Click")
    values = [
        click(by_avro, "1", 5_000),
        framed(by_json, b'{"id": "1", "at": 6000}'),
        protobuf(by_protobuf, [1], message(id="2", at=7_000)),
        protobuf(by_protobuf, [1], message(id="1", at=8_000)),
        framed(by_json, b'{"id": "3", "at": 9000}'),
    ]
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    pipeline.produce([record(b"k", value, 1) for value in values])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    cleaned = [(one.value, one.timestamp_ms) for one in pipeline.cleaned()]
    assert cleaned == [(values[0], 5_000), (values[2], 7_000), (values[4], 9_000)]
    # Each schema was asked for once; of Protobuf its descriptor, too.
    assert sorted(registry.asked) == sorted(
        [
            *(f"/schemas/ids/{one}" for one in (by_avro, by_json, by_protobuf)),
            f"/schemas/ids/{by_protobuf}?format=serialized",
        ]
    )


def test_a_partition_waits_for_a_registry_that_is_away_and_loses_nothing(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    first, second = (registry.register("clicks-value", CLICK_AVRO) for _ in range(2))
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    pipeline.produce([record(b"k", click(first, "1", 1_000), 1)])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    pipeline.wait_for_cleaned(1)
    registry.is_away = True
    late = [click(first, "2", 2_000), click(second, "3", 3_000), click(second, "3", 4_000)]
    pipeline.produce([record(b"k", value, 1) for value in late])
    asked = len(registry.asked)
    pipeline.wait_until(lambda: len(registry.asked) > asked + 3, "more questions than one")
    assert sidecar.log.count(AWAY) == 1
    registry.is_away = False
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert [one.timestamp_ms for one in pipeline.cleaned()] == [1_000, 2_000, 3_000]
    assert sidecar.log.count("the schema registry answers again") == 1


def test_a_sidecar_that_waits_for_a_registry_can_be_stopped_and_goes_on_later(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    number = registry.register("clicks-value", CLICK_AVRO)
    registry.is_away = True
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    pipeline.produce([record(b"k", click(number, "1", 1_000), 1)])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    sidecar.wait_for(AWAY)
    assert sidecar.stop() == 0
    registry.is_away = False
    again = pipeline.start(schema_registry_url=registry.url)
    pipeline.wait_until_done()
    assert again.stop() == 0
    assert [one.timestamp_ms for one in pipeline.cleaned()] == [1_000]


def test_a_schema_that_the_registry_does_not_know_makes_a_dead_letter_with_its_number(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    number = registry.register("clicks-value", CLICK_AVRO)
    unknown = click(4711, "1", 1_000)
    plain = b'{"id": "1", "at": 1000}'
    cut = click(number, "1", 1_000)[:-1]
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    values = [unknown, plain, cut, click(number, "1", 2_000)]
    pipeline.produce([record(b"k", value, 1) for value in values])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert [one.timestamp_ms for one in pipeline.cleaned()] == [2_000]
    dead = pipeline.beside("dead")
    assert [one.value for one in dead] == [unknown, plain, cut]
    why = [dict(one.headers)["__streams.errors.message"] for one in dead]
    assert why[0] == b"the registry has no schema 4711 (Schema 4711 not found)"
    assert why[1] == b"the value does not begin with a zero byte and the number of a schema"
    assert (why[2] or b"").startswith(b"the value is not of its schema 1 (")


def test_a_record_that_was_held_before_is_read_by_a_process_that_never_saw_its_schema(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    first, second = (registry.register("clicks-value", CLICK_AVRO) for _ in range(2))
    pipeline = make_pipeline("reorder: {grace: 10s}", DEDUPLICATE, source="values: registry")
    pipeline.produce([record(b"k", click(first, "1", 0), 1_000)])
    pipeline.produce([record(b"k", click(first, "1", 0), 2_000)])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert pipeline.cleaned() == []
    pipeline.produce([record(b"k", click(second, "2", 0), 60_000)])
    pipeline.produce([record(b"k", click(second, "2", 0), 120_000)])
    registry.asked.clear()
    again = pipeline.start(schema_registry_url=registry.url)
    pipeline.wait_until_done()
    assert again.stop() == 0
    assert [one.timestamp_ms for one in pipeline.cleaned()] == [1_000, 60_000]
    # The record that came was decoded first; the held one asked for its own schema when it left.
    assert registry.asked == [f"/schemas/ids/{one}" for one in (second, first)]


def test_ids_are_compared_over_all_partitions_and_aggregates_behind_are_json(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    number = registry.register("clicks-value", CLICK_AVRO)
    pipeline = make_pipeline(
        "deduplicate: {by: id, id: value.id, interval: 1h}",
        "aggregate: {function: count}",
        "filter: {where: value >= 2}",
        source=f"{SOURCE}, idle: 1s",
        partitions=2,
    )
    pipeline.produce(
        [
            record(b"k", click(number, click_id, at_ms), 1, partition=partition)
            for partition, click_id, at_ms in [(0, "1", 1_000), (1, "1", 2_000), (0, "1", 3_000)]
        ]
    )
    pipeline.produce([record(b"k", click(number, "1", 4_000_000), 1, partition=0)])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    # Behind the repartition time waits for the partition that is quiet, until it is idle.
    pipeline.wait_for_cleaned(1)
    assert sidecar.stop() == 0
    assert [one.value for one in pipeline.cleaned()] == [(2).to_bytes(8, "big")]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "check HEADRACE_SCHEMA_REGISTRY_USERNAME and HEADRACE_SCHEMA_REGISTRY_PASSWORD"),
        (
            {"schema_registry_username": USER, "schema_registry_password": "wrong"},
            "check HEADRACE_SCHEMA_REGISTRY_USERNAME and HEADRACE_SCHEMA_REGISTRY_PASSWORD",
        ),
        ({"schema_registry_username": USER, "schema_registry_password": PASSWORD}, None),
    ],
    ids=["nobody", "wrong", "right"],
)
def test_a_registry_may_want_to_know_who_asks(
    make_pipeline: MakePipeline,
    registry: RegistryServer,
    settings: dict[str, str],
    sentence: str | None,
) -> None:
    number = registry.register("clicks-value", CLICK_AVRO)
    registry.wants_login = True
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    pipeline.produce([record(b"k", click(number, "1", 1_000), 1)])
    sidecar = pipeline.start(schema_registry_url=registry.url, **settings)
    if sentence is None:
        pipeline.wait_for_cleaned(1)
        assert sidecar.stop() == 0
    else:
        assert sidecar.wait() == 2
        assert sentence in sidecar.last_words
        assert "Traceback" not in sidecar.log


def test_an_address_where_no_registry_answers_is_a_mistake_and_makes_nothing_dead(
    make_pipeline: MakePipeline, registry: RegistryServer
) -> None:
    number = registry.register("clicks-value", CLICK_AVRO)
    registry.answer = 404, b"<html>not here</html>"
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    pipeline.produce([record(b"k", click(number, "1", 1_000), 1)])
    sidecar = pipeline.start(schema_registry_url=registry.url)
    assert sidecar.wait() == 2
    assert "check HEADRACE_SCHEMA_REGISTRY_URL" in sidecar.last_words
    assert pipeline.beside("dead") == []


def test_a_pipeline_that_needs_a_registry_says_so_at_its_start(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(DEDUPLICATE, source=SOURCE)
    sidecar = pipeline.start()
    assert sidecar.wait() == 2
    assert "HEADRACE_SCHEMA_REGISTRY_URL: is missing" in sidecar.last_words
    assert "Traceback" not in sidecar.log
