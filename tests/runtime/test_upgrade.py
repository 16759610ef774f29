"""Instances of the version before are replaced one by one, under load, and nobody notices.

`version_before.tar.xz` is what its wheel carried, as far as a sidecar needs it. It was packed once,
so that a checkout without history has it:

    git archive fc8a687 contracts services -- ':!*.md' ':!services/broker' ':!services/cli/demo'
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from headrace.contracts.origin import read_origin, read_run
from headrace.contracts.record import Record
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar, record

ARCHIVE = Path(__file__).parent / "version_before.tar.xz"
PARTITIONS = 4
AT_ONCE = 100
PAUSE_S = 0.05
BY_ID = "deduplicate: {by: id, id: header.id, interval: 10m}"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code of the version before."""
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(ARCHIVE) as files:
        # Python 3.11.2, Debian 12's own, knows no filters; the archive is ours.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(folder)  # noqa: S202 - ours
    return folder


class Load:
    """The records that are written while instances come and go: of ten, three are twins."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Write nothing yet."""
        self._pipeline = pipeline
        self._luck = Random(19)
        self._twins: list[Record] = []
        self.ids = 0

    def write(self, ends: Event) -> None:
        """Write until told to end."""
        for first in count(0, AT_ONCE):
            self._pipeline.produce(self._some(first))
            self.ids = first + AT_ONCE
            if ends.wait(PAUSE_S):
                return

    def _some(self, first: int) -> Iterator[Record]:
        yield from self._twins
        self._twins = []
        for number in range(first, first + AT_ONCE):
            one = self._one(number)
            yield one
            if self._luck.random() < 3 / 10:
                self._twins.append(one._replace(partition=self._luck.randrange(PARTITIONS)))

    def _one(self, number: int) -> Record:
        identity = b"%d" % number
        key = None if self._luck.random() < 1 / 2 else b"k%d" % self._luck.randrange(20)
        headers = (("id", identity), ("other", None))
        return record(key, identity, number * 10, headers, self._luck.randrange(PARTITIONS))


@contextmanager
def under(load: Load) -> Iterator[None]:
    """Records are written while this is open."""
    ends = Event()
    writing = Thread(target=load.write, args=[ends])
    writing.start()
    try:
        yield
    finally:
        ends.set()
        writing.join()


def start_before(pipeline: Pipeline, instance: str, code: Path, **settings: str) -> None:
    """Start an instance of the version before."""
    given = {"state_folder": str(pipeline.state / instance), **settings}
    pipeline.sidecars.append(Sidecar(pipeline, instance, given, code=code))


def wait_for_more(pipeline: Pipeline) -> None:
    """Wait until those who run have cleaned some."""
    so_far = len(pipeline.cleaned()) if pipeline.sink in pipeline.clients.topics() else 0
    pipeline.wait_for_cleaned(so_far + 5 * AT_ONCE)


def says_origins(pipeline: Pipeline) -> bool:
    """Whether the new ones know that nobody is left who would pass it on."""
    spread = pipeline.clients.consume_all(pipeline.spec.hops()[1].topic)
    return any(read_origin(one.headers) or read_run(one) for one in spread)


@pytest.mark.long("kill", why="when records come and instances go is up to the clock")
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_no_record_is_lost_or_doubled_while_instances_are_replaced(
    make_pipeline: MakePipeline, before: Path, guarantee: str
) -> None:
    pipeline = make_pipeline(BY_ID, partitions=PARTITIONS)
    load = Load(pipeline)
    with under(load):
        for instance in ("one", "two"):
            start_before(pipeline, instance, before, guarantee=guarantee)
        wait_for_more(pipeline)
        for instance in ("one", "two"):
            former = pipeline.sidecars.pop(0)
            assert former.stop() == 0, former.log
            pipeline.start(instance, guarantee=guarantee)
            wait_for_more(pipeline)
        pipeline.wait_until(partial(says_origins, pipeline), "word of where records come from")
        wait_for_more(pipeline)
    pipeline.wait_until_done()
    cleaned = pipeline.cleaned()
    assert Counter(one.value for one in cleaned) == Counter(b"%d" % n for n in range(load.ids))
    assert {one.headers for one in cleaned} == {
        (("id", one.value), ("other", None)) for one in cleaned
    }
    assert pipeline.beside("dead") == []


@pytest.mark.long("kill", why="its twin replaces instances that were stopped")
def test_a_killed_instance_is_replaced_by_the_next_version(
    make_pipeline: MakePipeline, before: Path
) -> None:
    pipeline = make_pipeline(BY_ID, partitions=PARTITIONS)
    load = Load(pipeline)
    with under(load):
        start_before(pipeline, "one", before)
        wait_for_more(pipeline)
        pipeline.sidecars.pop(0).kill()
        pipeline.start("one")
        wait_for_more(pipeline)
    pipeline.wait_until_done()
    cleaned = pipeline.cleaned()
    assert Counter(one.value for one in cleaned) == Counter(b"%d" % n for n in range(load.ids))
    assert pipeline.beside("dead") == []
