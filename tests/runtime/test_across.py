"""Time across a repartition: backlogs, instances and kills show in nothing that comes out."""

from __future__ import annotations

from random import Random

import pytest

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.record import Record
from tests.runtime.across import (
    ACROSS,
    SOURCE,
    WITH_TWINS,
    Across,
    asides_of,
    by_place,
    expected_across,
    some_partitions,
    with_any,
)
from tests.runtime.expected import by_partition
from tests.runtime.payments import PIPELINES, START_MS, Case, payments, run
from tests.runtime.sidecar import SHORT_SESSION, MakePipeline, Pipeline

PARTITIONS = 8


REORDER = pytest.mark.long("time", why="the shorter pipeline runs the same path")
THREE = pytest.mark.long("time", why="three instances share a backlog")


@pytest.mark.parametrize(
    ("is_live", "instances"),
    [(False, 1), pytest.param(False, 3, marks=THREE), pytest.param(True, 3, marks=THREE)],
)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=REORDER) if "reorder" in one else one for one in PIPELINES]
)
def test_no_twin_comes_through_and_nobody_is_called_late(
    make_pipeline: MakePipeline, name: str, instances: int, *, is_live: bool
) -> None:
    raw = payments(8_000, PARTITIONS, seed=instances)
    found = run(make_pipeline, Case(name, is_live, instances), raw, PARTITIONS)
    assert found.is_right, found


@pytest.mark.long("time", why="its twin with keys runs the same path")
def test_a_null_key_in_every_record_is_as_good_as_any(make_pipeline: MakePipeline) -> None:
    raw = payments(5_000, PARTITIONS, seed=8, null_keys=1.0)
    found = run(make_pipeline, Case("by id", is_live=False, instances=1), raw, PARTITIONS)
    assert found.is_right, found


SEEDS = 3


@pytest.mark.long("time", why="instances, kills and cuts are drawn, for half a minute each")
@pytest.mark.parametrize(
    ("name", "seed", "kills"),
    [(name, seed, 2 + seed) for name in sorted(ACROSS) for seed in range(SEEDS)],
)
def test_the_output_is_a_function_of_the_source_partitions(
    make_pipeline: MakePipeline, name: str, seed: int, kills: int
) -> None:
    luck = Random(seed)
    pipeline = make_pipeline(*ACROSS[name], partitions=4, source=SOURCE)
    raw = some_partitions(luck, 4, 2_000, twins=name == WITH_TWINS, start_ms=START_MS)
    lead_by_luck(pipeline, raw, luck, kills)
    of_source = by_partition(pipeline.clients.consume_all(pipeline.source))
    expected = expected_across(pipeline.spec, of_source)
    assert_is_as_expected(pipeline, expected)


def lead_by_luck(pipeline: Pipeline, raw: list[Record], luck: Random, kills: int) -> None:
    """Write records in pieces, while one to four instances run, come, and are killed."""
    for number in range(luck.randint(1, 4)):
        start_by_luck(pipeline, f"{number}", luck)
    left = raw
    for number in range(kills):
        cut = luck.randrange(len(left))
        pipeline.produce(left[:cut])
        left = left[cut:]
        victim = luck.choice(pipeline.sidecars)
        victim.wait_for("] running")
        victim.kill()
        pipeline.sidecars.remove(victim)
        start_by_luck(pipeline, f"later-{number}", luck)
    pipeline.produce(left)


def start_by_luck(pipeline: Pipeline, instance: str, luck: Random) -> None:
    """Start an instance that commits often or rarely."""
    commit_interval = luck.choice(("10ms", "100ms", "1s"))
    pipeline.start(instance, commit_interval=commit_interval, **SHORT_SESSION)


def assert_is_as_expected(pipeline: Pipeline, expected: Across) -> None:
    """Record by record, in order."""
    assert any(expected.dead.values()), "nobody is dead, so nothing would be seen"
    found = pipeline.wait_for_cleaned(sum(map(len, expected.cleaned.values())))
    assert by_place(found) == with_any(expected.cleaned)
    if pipeline.spec.sends_late():
        late = sum(map(len, expected.late.values()))
        pipeline.wait_until(lambda: len(pipeline.beside("late")) >= late, f"{late} late records")
        assert by_place(pipeline.beside("late")) == with_any(expected.late)
    dead = sum(map(len, expected.dead.values()))
    pipeline.wait_until(lambda: len(pipeline.beside("dead")) >= dead, f"{dead} dead letters")
    letters = ((one.partition, read_dead(one)) for one in pipeline.beside("dead"))
    by_operator = asides_of((at, letter) for at, letter in letters if letter is not None)
    assert by_operator == with_any(expected.dead)
