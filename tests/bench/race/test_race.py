"""The race works, and headrace writes the records that the oracles predict. No test is timed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from xml.dom import minidom

import pytest
import yaml

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import Record
from tests.bench.race.chart import race_chart
from tests.bench.race.cluster import opened
from tests.bench.race.contestants import CONTESTANTS, OPERATORS, ORDERED, pipeline_text
from tests.bench.race.figures import Figures, figures, rows
from tests.bench.race.heats import Heat, Track, heats
from tests.bench.race.machine import busy_shares
from tests.bench.race.outcome import (
    Disagreement,
    Outcome,
    check_beginning,
    check_same,
    fingerprint,
)
from tests.bench.race.report import report
from tests.bench.race.results import Circumstances, Results
from tests.bench.race.source import PARTITIONS, Source, sent
from tests.bench.race.worker import Sample, Watched
from tests.kafka.fixtures import SharedKafka
from tests.properties.compose import expected_of_chain

# Few records, so far apart that they last as long as the race's.
SOURCE = Source(records=2_000, keys=400, step_ms=500)
COMMIT_INTERVAL_MS = 100


@pytest.mark.long("users", why="it runs a small race")
def test_headrace_and_the_floor_write_what_the_oracles_say(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    written = asyncio.run(_race(kafka.bootstrap_servers, tmp_path))
    assert sorted(written) == sorted(["copy", *OPERATORS])
    for operator, outcome in written.items():
        expected = _expected(operator)
        assert expected.count > 0
        ordered = operator in ORDERED
        assert fingerprint(outcome, ordered=ordered) == fingerprint(expected, ordered=ordered)


async def _race(bootstrap_servers: str, folder: Path) -> dict[str, Outcome]:
    """Every operator once; whoever runs it a second time was compared with the first."""
    contestants = [CONTESTANTS["headrace"], CONTESTANTS["bare"]]
    async with opened(bootstrap_servers) as cluster:
        track = Track(cluster, SOURCE, folder)
        await track.prepare()
        for heat in heats(1, ["copy", *OPERATORS], contestants):
            if heat.guarantee == "exactly-once" or heat.operator == "deduplicate":
                run = await track.run(heat, COMMIT_INTERVAL_MS)
                assert run.outputs == track.outcomes[heat.operator].count
        await track.clear()
    return track.outcomes


def _expected(operator: str) -> Outcome:
    outcome = Outcome()
    partitions: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for one in sent(SOURCE):
        records = partitions[one.partition]
        records.append(
            Record(one.key, one.value, one.timestamp_ms, (), "source", one.partition, len(records))
        )
    for number, records in enumerate(partitions):
        if operator == "copy":
            for record in records:
                outcome.add(number, record.key, record.value, record.timestamp_ms)
        else:
            for output in expected_of_chain(_policies(operator), records).outputs:
                outcome.add(number, output.key, output.value, output.timestamp_ms)
    return outcome


def _policies(operator: str) -> tuple[AnyOperator, ...]:
    heat = Heat(0, operator, CONTESTANTS["headrace"], "exactly-once")
    text = pipeline_text(operator, group=heat.name, source="source", sink="sink")
    return PipelineSpec.model_validate(yaml.safe_load(text)).operators


def _outcome(*records: tuple[int, bytes]) -> Outcome:
    outcome = Outcome()
    for partition, value in records:
        outcome.add(partition, b"key", value, 0)
    return outcome


def test_a_record_more_or_less_or_other_is_a_disagreement() -> None:
    whole = _outcome((0, b"a"), (0, b"b"))
    check_same("same", _outcome((0, b"a"), (0, b"b")), whole, ordered=True)
    for other in (
        _outcome((0, b"a")),
        _outcome((0, b"a"), (0, b"a")),
        _outcome((0, b"a"), (0, b"b"), (0, b"b")),
    ):
        with pytest.raises(Disagreement):
            check_same("other", other, whole, ordered=False)


def test_another_order_is_a_disagreement_where_order_is_promised() -> None:
    whole, turned = _outcome((0, b"a"), (0, b"b")), _outcome((0, b"b"), (0, b"a"))
    check_same("turned", turned, whole, ordered=False)
    with pytest.raises(Disagreement):
        check_same("turned", turned, whole, ordered=True)


def test_a_contestant_that_is_stopped_early_must_have_begun_as_the_others_did() -> None:
    whole = _outcome((0, b"a"), (0, b"b"), (1, b"c"))
    check_beginning("slow", _outcome((0, b"a")), whole)
    with pytest.raises(Disagreement):
        check_beginning("wrong", _outcome((0, b"b")), whole)


def _ends(first: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), 0) | {0: first}


def test_a_run_counts_from_its_first_commit_to_its_last() -> None:
    samples = [
        Sample(1.0, 5.0, 0, _ends(0)),
        Sample(2.0, 6.0, 100, _ends(50)),
        Sample(3.0, 7.0, 600, _ends(550)),
        Sample(4.0, 7.5, 600, _ends(1_000)),
        Sample(6.0, 8.0, 1_100, _ends(1_001)),
    ]
    outcome = Outcome()
    outcome.next_offsets[0] = 1_000
    label = ("bare", "copy", "exactly-once", 0)
    run = figures(label, Watched(samples, resident_bytes=1), outcome)
    assert (run.start_up_seconds, run.measured_records) == (2.0, 1_000)
    assert (run.whole_per_cpu_second, run.whole_per_second) == (500.0, 500.0)
    assert (run.steady_per_cpu_second, run.steady_per_second) == (500.0, 500.0)
    slower = run._replace(steady_per_cpu_second=250.0)
    (row,) = rows([run, slower])
    assert row.steady_per_cpu_second == (375.0, 250.0, 500.0)


def test_the_chart_is_an_image_with_a_bar_for_each_row() -> None:
    samples = [Sample(float(at), float(at), 4 * at, _ends(4 * at)) for at in (1, 2, 3)]
    run = figures(("bare", "copy", "exactly-once", 0), Watched(samples, 1), Outcome())
    drawn = race_chart(list(rows([run, run._replace(contestant="headrace")])))
    # This test parses only its own output.
    assert len(minidom.parseString(drawn).getElementsByTagName("rect")) == 2  # noqa: S318


def test_how_busy_the_machine_is_counts_from_the_last_question(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  60 0 20 10 10 0 0 0\ncpu0 1 1 1 1\n")
    busy = busy_shares(stat)
    assert next(busy) == pytest.approx(0.8)
    stat.write_text("cpu  65 0 20 20 15 0 0 0\ncpu0 1 1 1 1\n")
    assert next(busy) == pytest.approx(0.25)
    assert next(busy) == 0.0


def test_a_ratio_is_to_the_fastest_streams_and_its_worst_round_is_named() -> None:
    samples = [Sample(float(at), float(at), 4 * at, _ends(4 * at)) for at in (1, 2, 3)]
    run = figures(("headrace", "suppress", "exactly-once", 0), Watched(samples, 1), Outcome())

    def at(contestant: str, number: int, rate: float) -> Figures:
        return run._replace(
            contestant=contestant, round=number, steady_per_cpu_second=rate, steady_per_second=rate
        )

    runs = [
        *(at("headrace", 0, 60.0), at("headrace", 1, 60.0)),
        *(at("streams", 0, 10.0), at("streams", 1, 10.0)),
        *(at("streams-parallel", 0, 20.0), at("streams-parallel", 1, 40.0)),
    ]
    row = next(line for line in report(_results(runs)).splitlines() if "| headrace |" in line)
    assert [cell.strip() for cell in row.split("|")][4:6] == ["2.0x", "1.5x"]


def _results(runs: list[Figures]) -> Results:
    circumstances = Circumstances("python", {}, {}, ["", ""], 1, 1, 1, 1)
    return Results(circumstances, runs, [], [])
