"""A partition that fails has those begin again that have sent something with it, and no others."""

from __future__ import annotations

from headrace.contracts.record import Record
from tests.runtime.expected import (
    FOR_EVER,
    LONG,
    has_open_records,
    large_records,
    some_records,
    wait_until_running,
)
from tests.runtime.sidecar import MakePipeline, Pipeline, record

PARTITIONS = 4
FAILS_ONCE = """
from pathlib import Path

from headrace.services.operators.deduplicate import Deduplicate

process = Deduplicate.process


def fail(self, batch):
    step = process(self, batch)
    if any(record.value == b"bad" for record in batch.records):
        raise TypeError("a mistake of ours")
    return step


def identity(record):
    return dict(record.headers)["id"]


Deduplicate.process = fail
"""


def failing(make_pipeline: MakePipeline) -> Pipeline:
    """A pipeline whose operator fails on records that are bad."""
    pipeline = make_pipeline(
        "reorder: {grace: 5s}",
        "deduplicate: {by: key+id, id: 'of_user:identity', interval: 20s}",
        partitions=PARTITIONS,
    )
    (pipeline.folder / "of_user.py").write_text(FAILS_ONCE)
    return pipeline


def bad(at_ms: int) -> Record:
    """One of them; each has an id of its own, and leaves the reorder at once."""
    return record(b"k", b"bad", at_ms, (("id", b"bad-%d" % at_ms),), 1)


def test_a_partition_that_fails_has_its_transaction_begin_again(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = failing(make_pipeline)
    sidecar = pipeline.start(**LONG, transaction_timeout=FOR_EVER)
    wait_until_running(pipeline, sidecar, PARTITIONS)
    pipeline.produce(large_records(80, PARTITIONS))
    pipeline.wait_until(lambda: has_open_records(pipeline), "open records")
    pipeline.produce([bad(100_000), record(b"k", b"good", 200_000, (("id", b"1"),), 1)])
    sidecar.wait_for("a partition of its transaction failed")
    assert sidecar.stop() == 0
    again = pipeline.start()
    pipeline.wait_until_done()
    assert again.stop() == 0
    assert [one.timestamp_ms for one in pipeline.beside("dead")] == [100_000]
    values = [one.value for one in pipeline.cleaned()]
    assert len(values) == len(set(values)) > 0


def test_a_partition_without_open_records_does_not_begin_again(make_pipeline: MakePipeline) -> None:
    pipeline = failing(make_pipeline)
    sidecar = pipeline.start()
    wait_until_running(pipeline, sidecar, PARTITIONS)
    pipeline.produce([bad(100_000), record(b"k", b"good", 200_000, (("id", b"1"),), 1)])
    pipeline.wait_until_done()
    good = some_records(40, 1, PARTITIONS, start_ms=300_000)
    pipeline.produce(good)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert sidecar.log.count("] running ") == PARTITIONS + 1
    values = [one.value for one in pipeline.cleaned()]
    assert len(values) == len(set(values)) > 0


def test_the_first_of_many_failing_records_alone_has_its_transaction_begin_again(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = failing(make_pipeline)
    sidecar = pipeline.start()
    count = 20
    for number in range(1, count + 1):
        good = some_records(40, number, PARTITIONS, start_ms=number * 100_000)
        pipeline.produce([*good[:20], bad(number * 100_000 + 10_000), *good[20:]])
        pipeline.wait_until_done()
    pipeline.produce([record(b"k", b"good", 10**8, (("id", b"1"),), 1)])
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert len(pipeline.beside("dead")) == count
    assert sidecar.log.count("a batch failed, and is done record by record") == 1
