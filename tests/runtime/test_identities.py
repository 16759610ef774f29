"""A topic that was made again under its name is not taken for the old one."""

from __future__ import annotations

import asyncio
import re

from aiokafka.admin import AIOKafkaAdminClient

from headrace.contracts.errors import GroupBusy
from headrace.services.cli.reset import reset
from tests.kafka.growing import grow
from tests.runtime.expected import REORDER_AND_DEDUPLICATE, assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar, record

FOREVER = {"retention.ms": "-1"}


def run_on(pipeline: Pipeline, step: int) -> Sidecar:
    """Live through the next part of the stream."""
    pipeline.produce(some_records(100, step, start_ms=step * 12_000))
    # An instance with a name would count for a while behind its stop.
    sidecar = pipeline.start(instance_id="")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    return sidecar


def delete(pipeline: Pipeline, *topics: str) -> None:
    """Delete topics, and wait until they are gone."""

    async def act() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=pipeline.servers)
        await admin.start()
        try:
            await admin.delete_topics(list(topics))
        finally:
            await admin.close()

    asyncio.run(act())
    pipeline.wait_until(lambda: not pipeline.clients.topics() & set(topics), "no such topics")


def test_a_source_that_was_made_anew_and_is_longer_is_a_sentence(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    run_on(pipeline, 0)
    delete(pipeline, pipeline.source)
    pipeline.clients.make_topic(pipeline.source, 1, FOREVER)
    pipeline.produce(some_records(300, 1, start_ms=12_000))
    sidecar = pipeline.start()
    assert sidecar.wait() == 4
    assert f"`{pipeline.source}` was deleted and made anew since this state was" in sidecar.log
    assert "headrace reset" in sidecar.last_words


def test_a_source_that_is_made_anew_while_it_is_read_is_the_same_sentence(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    pipeline.produce(some_records(100, 0))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    delete(pipeline, pipeline.source)
    pipeline.clients.make_topic(pipeline.source, 1, FOREVER)
    pipeline.produce(some_records(300, 1, start_ms=12_000))
    assert sidecar.wait() == 4
    assert f"`{pipeline.source}` was deleted and made anew since this state was" in sidecar.log
    assert "headrace reset" in sidecar.last_words


def test_progress_behind_a_reset_names_the_last_record_that_was_cleaned_before(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}")
    run_on(pipeline, 0)
    last = pipeline.cleaned()[-1].offset
    assert last is not None
    delete(pipeline, pipeline.source)
    pipeline.clients.make_topic(pipeline.source, 1, FOREVER)
    pipeline.wait_until(lambda: is_reset(pipeline), "a reset")
    sidecar = pipeline.start(instance_id="")
    sidecar.wait_for("running")
    pipeline.wait_until(lambda: pipeline.progress()[-1].is_idle, "word of the empty partition")
    assert pipeline.progress()[-1].cleaned_offset == last
    assert sidecar.stop() == 0


def is_reset(pipeline: Pipeline) -> bool:
    """Whether nobody runs any more, so that the pipeline could forget all but what it cleaned."""
    try:
        reset(
            pipeline.file,
            yes=True,
            bootstrap_servers=pipeline.servers,
            state_folder=pipeline.state / "one",
        )
    except GroupBusy:
        return False
    return True


def test_a_folder_from_before_a_reset_elsewhere_is_put_aside(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    run_on(pipeline, 0)
    # On another machine: nobody deletes what lies on this one.
    elsewhere = pipeline.folder / "elsewhere"

    def is_reset() -> bool:
        try:
            reset(
                pipeline.file,
                yes=True,
                cleaned=True,
                bootstrap_servers=pipeline.servers,
                state_folder=elsewhere,
            )
        except GroupBusy:
            return False
        return True

    pipeline.wait_until(is_reset, "a reset")
    sidecar = run_on(pipeline, 1)
    assert "it belongs to a changelog that was deleted since" in sidecar.log
    assert_cleaned(pipeline)


def test_a_repartition_topic_that_grew_is_a_sentence(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: id, id: header.id, interval: 10m}")
    pipeline.produce([record(b"k", b"v", 1_000, (("id", b"1"),))])
    sidecar = pipeline.start()
    pipeline.wait_for_cleaned(1)
    assert sidecar.stop() == 0
    first = pipeline.spec.hops()[0].changelog
    together = [topic.name for topic in pipeline.spec.topics() if topic != first]
    asyncio.run(grow(pipeline.servers, together, 3))
    sidecar = pipeline.start()
    assert sidecar.wait() == 4
    # Either hop may be opened first: the one that spreads, or the one behind it.
    assert re.search("(had|over) 1 partitions.*, and .*has 3 now: ", sidecar.last_words)
