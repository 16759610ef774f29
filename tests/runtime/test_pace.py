"""When a task commits, and what its transactions took."""

from __future__ import annotations

import time

import pytest

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.runtime.task.pace import COMMITS_PER_SECOND, Load, Pace
from headrace.services.settings import Settings

SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "clicks",
        "source": {"topic": "raw"},
        "operators": [{"deduplicate": {"by": "key", "interval": "1m"}}],
        "sink": {"topic": "cleaned"},
    }
)


INTERVAL_S = 0.2


class Clock:
    """Stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Everybody goes by it."""
        self.now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def paces(count: int) -> list[Pace]:
    """Those of one instance."""
    settings, hop, load = Settings(), SPEC.hops()[0], Load()
    return [Pace(settings, hop, load) for _ in range(count)]


def commits_in(clock: Clock, instance: list[Pace], seconds: int) -> int:
    """How many commits there are, when each partition has a record each 10 ms."""
    commits = 0
    is_open = [False] * len(instance)
    for _ in range(seconds * 100):
        clock.now_s += 0.01
        for number, pace in enumerate(instance):
            if not is_open[number]:
                pace.opened()
                is_open[number] = True
            elif pace.due_in_s(records_wait=False) <= 0:
                pace.commit_begins()
                pace.committed(1)
                commits += 1
                is_open[number] = False
    return commits


def test_few_partitions_commit_once_an_interval(clock: Clock) -> None:
    few = int(COMMITS_PER_SECOND * INTERVAL_S)
    for count in (1, few):
        made = commits_in(clock, paces(count), 10)
        assert made == pytest.approx(count * 10 / INTERVAL_S, rel=0.1)


@pytest.mark.parametrize("count", [256, 512])
def test_many_partitions_share_the_commits_of_an_instance(clock: Clock, count: int) -> None:
    made = commits_in(clock, paces(count), 20)
    assert made == pytest.approx(COMMITS_PER_SECOND * 20, rel=0.2)


@pytest.mark.usefixtures("clock")
def test_partitions_without_anything_to_commit_take_no_part() -> None:
    one, *others = paces(256)
    for other in others:
        other.opened()
        other.commit_begins()
        other.committed(1)
    one.opened()
    assert one.due_in_s(records_wait=False) == pytest.approx(INTERVAL_S)
    for other in others:
        other.opened()
    assert one.due_in_s(records_wait=False) > INTERVAL_S
    for other in others:
        other.given_up(0)
        other.given_up(0)
    assert one.due_in_s(records_wait=False) == pytest.approx(INTERVAL_S)


def test_a_breath_between_fetches_is_part_of_a_commit_interval_and_short_in_any_case() -> None:
    load = Load()
    breaths_s = [load.breath_s(interval_s) for interval_s in (0.2, 2.0, 5.0, 300.0)]
    assert breaths_s == pytest.approx([0.01, 0.1, 0.25, 0.25])
    load.open = COMMITS_PER_SECOND
    assert load.breath_s(0.2) == pytest.approx(0.05), "all of them take a second to commit once"


def test_brokers_gather_records_for_a_fetch_where_many_partitions_share_the_commits() -> None:
    load = Load()
    load.open = int(COMMITS_PER_SECOND * INTERVAL_S)
    assert load.gathering_s(INTERVAL_S) == 0
    load.open = COMMITS_PER_SECOND
    assert load.gathering_s(INTERVAL_S) == pytest.approx(1 / 6)
    assert load.gathering_s(1.0) == 0, "they commit once an interval"
    load.open = 10 * COMMITS_PER_SECOND
    assert load.gathering_s(INTERVAL_S) == 0.25, "the wait is short in any case"


def test_no_partition_waits_until_its_transaction_times_out(clock: Clock) -> None:
    instance = paces(5_000)
    for pace in instance:
        pace.opened()
    assert instance[0].due_in_s(records_wait=True) <= Settings().transaction_timeout_ms / 3_000
    assert clock.now_s == 100


def test_a_transaction_given_up_after_its_timeout_has_outlasted_it(
    clock: Clock,
) -> None:
    pace = Pace(Settings(transaction_timeout_ms=2_000), SPEC.hops()[0], Load())
    for was_open_s, has_outlasted in ((1.9, False), (2.1, True), (0.0, False)):
        pace.opened()
        clock.now_s += was_open_s
        pace.given_up(1)
        assert pace.has_outlasted is has_outlasted


@pytest.mark.usefixtures("clock")
def test_a_partition_that_hurries_is_due_until_it_has_committed() -> None:
    (pace,) = paces(1)
    pace.opened()
    assert not pace.is_due(records=1, sent_bytes=1, records_wait=False)
    pace.hurries = True
    assert pace.is_due(records=1, sent_bytes=1, records_wait=False)
    pace.commit_begins()
    pace.committed(1)
    pace.opened()
    assert not pace.is_due(records=1, sent_bytes=1, records_wait=False)


def test_records_may_wait_only_where_operators_take_them_in_no_time(clock: Clock) -> None:
    (pace,) = paces(1)
    assert pace.few() == 1, "nobody knows yet how long one takes"
    for _ in range(20):
        pace.processed(pace.records_at_once(), clock.now_s)
    few = pace.few()
    assert 1 < few < pace.records_at_once(), "a batch of a few costs each record little"
    began_at_s = clock.now_s
    clock.now_s += 100
    pace.processed(pace.records_at_once(), began_at_s)
    assert pace.few() == 1
