"""`reorder: {idle: ...}`: what is held leaves in a silence, and never before what waits unread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.runtime.input.survey import Surveyed
from tests.kafka.clients import fresh_name
from tests.runtime.scraped import scraped
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record
from tests.runtime.test_tally import Running
from tests.runtime.working import working

IDLE = "reorder: {grace: 1h, idle: 1s}"
EARLY, EARLIER = record(b"a", b"1", 50_000), record(b"b", b"2", 40_000)


def test_a_silent_source_lets_go_of_what_is_held(make_pipeline: MakePipeline) -> None:
    plain, transactional = make_pipeline(IDLE), make_pipeline(IDLE)
    never = make_pipeline("reorder: {grace: 1h}")
    for pipeline in (plain, never):
        pipeline.produce([EARLY, EARLIER])
    # The end of this source is a marker, which nobody reads.
    transactional.clients.produce_committed(transactional.source, [EARLY, EARLIER], "t")
    for pipeline in (plain, transactional, never):
        pipeline.start()
    for pipeline in (plain, transactional):
        assert contents(pipeline.wait_for_cleaned(2)) == contents([EARLIER, EARLY])
        # Time has moved on by the grace, so that nothing overtakes what left.
        assert pipeline.progress()[-1].progress_ms == 50_000
    # It may be slower than the others, and have read nothing by now.
    never.wait_until_done()
    assert never.cleaned() == []


@pytest.mark.long("time", why="it waits for silence")
def test_a_silence_of_ours_is_not_one_of_the_source(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h, idle: 5s}")
    pipeline.produce([EARLY])
    sidecar = pipeline.start(session_timeout="1m")
    pipeline.wait_until_done()
    # For longer than that it neither reads nor looks at the clock, as on a machine that sleeps.
    sidecar.pause()
    pipeline.produce([EARLIER])
    time.sleep(5.5)
    sidecar.resume()
    assert contents(pipeline.wait_for_cleaned(2)) == contents([EARLIER, EARLY])


def hidden_records(port: int) -> dict[str, int]:
    """How many offsets nobody may read yet, by partition, as a sidecar says."""
    found = scraped(port, "headrace_open_transaction_records")
    return {labels.split('partition="')[1][0]: int(value) for labels, value in found.items()}


async def meanwhile_open(pipeline: Pipeline, one: Record, do: Callable[[], object]) -> None:
    """Do something while a record of the source stands in an open transaction, and commit that."""
    producer = AIOKafkaProducer(
        bootstrap_servers=pipeline.servers,
        transactional_id=fresh_name("open"),
        transaction_timeout_ms=900_000,
    )
    async with producer, producer.transaction():
        await producer.send_and_wait(
            pipeline.source, one.value, one.key, one.partition, one.timestamp_ms
        )
        await asyncio.to_thread(do)


def test_a_source_with_an_open_transaction_at_its_end_is_not_silent(
    make_pipeline: MakePipeline, free_port: int
) -> None:
    pipeline = make_pipeline(IDLE, partitions=2)
    pipeline.produce([EARLY, EARLY._replace(partition=1)])

    def wait_for_the_other_partition() -> None:
        pipeline.start(http_port=str(free_port))
        assert [one.partition for one in pipeline.wait_for_cleaned(1)] == [1]
        hidden = {"0": 1, "1": 0}
        pipeline.wait_until(lambda: hidden_records(free_port) == hidden, "word of hidden records")
        assert [one.partition for one in pipeline.cleaned()] == [1]

    asyncio.run(meanwhile_open(pipeline, EARLIER, wait_for_the_other_partition))
    cleaned = pipeline.wait_for_cleaned(3)
    assert contents(cleaned)[:2] == contents([EARLIER, EARLY])


def test_a_source_is_not_silent_while_records_are_on_their_way_to_the_task(tmp_path: Path) -> None:
    spec = PipelineSpec.model_validate(
        {
            "pipeline": "clicks",
            "source": {"topic": "raw"},
            "operators": [{"reorder": {"grace": "1h", "idle": "1s"}}],
            "sink": {"topic": "cleaned"},
        }
    )

    async def was_at_end(position: int) -> bool:
        task = Running(position=position)
        async with working(spec, tmp_path) as work:
            work.survey = {task.source: Surveyed(100, 100, 100, at_s=5.0, brought=99)}
            assert not work.was_at_end(task, 5.1), "nobody has asked since then"
            return work.was_at_end(task, 5.0)

    # Behind the last record stands a marker, which comes to no task.
    assert asyncio.run(was_at_end(99))
    assert not asyncio.run(was_at_end(98))
