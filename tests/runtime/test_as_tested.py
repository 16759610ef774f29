"""`headrace.testing` says of a pipeline what its `.run()` does on a broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from random import Random

import pytest

from headrace import Record
from headrace.contracts.progress import Progress
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.testing import run
from tests.runtime.sidecar import MakePipeline, record, variables_of

RUN = """\
import headrace as hr

pipeline = hr.Pipeline("{name}").source("{name}.raw", idle="never")
pipeline = pipeline.reorder(grace="10s", late="topic")
pipeline = pipeline.deduplicate({options}, interval="10m").to("{name}.cleaned")
if __name__ == "__main__":
    pipeline.run()
"""
WAYS = {
    "by key and id": ('by="key+id", id="value.id"', "{by: key+id, id: value.id, interval: 10m}"),
    "by id": ('by="id", id="value.id"', "{by: id, id: value.id, interval: 10m}"),
}
_FAR_MS = 3_600_000
PARTITIONS = 2


def a_stream() -> list[Record]:
    """Records out of order, some of one id; at the end each partition moves far on."""
    luck = Random(7)
    records = [
        record(
            luck.choice((b"a", b"b", None)),
            b'{"id":%d}' % luck.randrange(40),
            max(0, at * 500 - luck.randrange(12_000)),
            (),
            luck.randrange(PARTITIONS),
        )
        for at in range(300)
    ]
    ends = [record(b"end", b"{}", _FAR_MS + at, (), at) for at in range(PARTITIONS)]
    return [*records, *ends]


ALIKE = pytest.mark.long("kill", why="ids behind a key take the same way")


@pytest.mark.parametrize("way", ["by key and id", pytest.param("by id", marks=ALIKE)])
def test_it_runs_as_it_was_tested(make_pipeline: MakePipeline, way: str) -> None:
    in_python, in_yaml = WAYS[way]
    pipeline = make_pipeline(
        "reorder: {grace: 10s, late: topic}",
        f"deduplicate: {in_yaml}",
        partitions=PARTITIONS,
        source="idle: never",
    )
    script = pipeline.folder / "clicks.py"
    script.write_text(RUN.format(name=pipeline.name, options=in_python))
    expected = run(load_pipeline(pipeline.file), a_stream())
    assert len(expected.cleaned) > 30
    assert expected.late
    pipeline.produce(a_stream())
    settings = {"state_folder": str(pipeline.state), "commit_interval": "50ms"}
    with Path(pipeline.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(script)], env=variables_of(pipeline, settings), stderr=log
        )
        try:
            pipeline.wait_for_cleaned(len(expected.cleaned))
            pipeline.wait_until_done()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
    assert seen(pipeline.cleaned()) == seen(expected.cleaned)
    assert seen(pipeline.beside("late")) == seen(expected.late)
    if way == "by key and id":
        # Behind a repartition the last times are told when a second is over.
        assert promised(pipeline.progress()) == promised(expected.progress.values())


def promised(rows: Iterable[Progress]) -> dict[int, tuple[int, ...]]:
    """Return the last progress of each partition; markers of transactions have offsets, too."""
    return {row.partition: (row.progress_ms, row.stream_time_ms, row.source_offset) for row in rows}


def seen(records: Iterable[Record]) -> list[tuple[object, ...]]:
    """Return the records of each partition, in its order."""
    told = [(one.partition, one.key, one.value, one.timestamp_ms) for one in records]
    return sorted(told, key=itemgetter(0))
