"""Nonsense through a real broker and a sidecar: what comes out is what the operators alone say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

import pytest

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.record import Headers, Record
from tests.chance import seed_of_run
from tests.kafka.any_names import produce_any_names
from tests.nonsense import functions
from tests.nonsense.judge import Outcome, own_headers, run
from tests.nonsense.records import stream
from tests.nonsense.streams import SLICE
from tests.runtime.sidecar import MakePipeline

COUNT = 4_000
_CODECS = (0, 1, 2, 3, 4)
"""None, gzip, snappy, lz4, zstd, in Kafka's numbers."""
_BATCH_BYTES = 400_000
_RECORD_BYTES = 300_000
_FAR_MS = 1 << 61
_NONSENSE = f"{functions.__name__}:nonsense"
_MINUTE = "{kind: tumbling, size: 1m, grace: 10s}"
_PIPELINES = {
    "in order": (
        "reorder: {grace: 10s, late: topic}",
        f"filter: {{where: '{_NONSENSE}'}}",
        "deduplicate: {by: key+id, id: value.id, interval: 1m}",
    ),
    "final results": (
        f"aggregate: {{function: sum, of: '{_NONSENSE}', late: topic, window: {_MINUTE}}}",
        "suppress: {until: window-closes}",
    ),
}
Content = tuple[bytes | None, bytes | None, int, Headers]


@pytest.mark.parametrize("name", _PIPELINES)
def test_a_sidecar_does_what_its_operators_do(make_pipeline: MakePipeline, name: str) -> None:
    seed = seed_of_run()
    pipeline = make_pipeline(*_PIPELINES[name])
    records = [
        record._replace(topic=pipeline.source, offset=offset)
        for offset, record in enumerate(_small(stream(Random(seed), COUNT)))
    ]
    batches = list(_batches(records))
    produce_any_names(pipeline.servers, pipeline.source, *batches, codecs=_CODECS)
    sidecar = pipeline.start()
    pipeline.wait_until_committed({(pipeline.source, 0): len(records)})
    assert sidecar.stop() == 0, sidecar.log
    assert "Traceback" not in sidecar.log, f"seed {seed}"
    expected = run(pipeline.spec, records, SLICE)
    assert expected.complaints == []
    assert [_content(one) for one in pipeline.cleaned()] == _left(expected, "forwarded")
    assert [_content(one) for one in pipeline.beside("late")] == _left(expected, "late")
    letters = [letter.record for one in pipeline.beside("dead") if (letter := read_dead(one))]
    bare = [_content(one._replace(headers=own_headers(one.headers))) for one in letters]
    # Those that are dead at the door go before those of the operators, slice by slice.
    assert sorted(bare, key=repr) == sorted(_left(expected, "dead"), key=repr), f"seed {seed}"


def _left(outcome: Outcome, how: str) -> list[Content]:
    return [_content(one.record) for one in outcome.verdicts if one.what.startswith(how)]


def _content(record: Record) -> Content:
    return record[:4]


def _small(records: Iterable[Record]) -> Iterator[Record]:
    """The sizes that a topic with the broker's defaults takes."""
    return (record for record in records if _size_bytes(record) < _RECORD_BYTES)


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    """As producers pack them; times in one batch are told by their difference."""
    batch: list[Record] = []
    size_bytes = 0
    for record in records:
        size_bytes += _size_bytes(record)
        apart_ms = abs(record.timestamp_ms - batch[0].timestamp_ms) if batch else 0
        if size_bytes > _BATCH_BYTES or apart_ms > _FAR_MS or len(batch) == 200:
            yield batch
            batch, size_bytes = [], _size_bytes(record)
        batch.append(record)
    yield batch


def _size_bytes(record: Record) -> int:
    headers = sum(len(name) * 2 + len(content or b"") + 8 for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 50
