"""The input has one right answer, differences from it are counted, and the page tells them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.bench.spark.topics import START_MS, Size
from tests.bench.whole import headrace, raw
from tests.bench.whole.agreement import Agreement, Priced, Wanted
from tests.bench.whole.drawn import whole_chart
from tests.bench.whole.kept import Kept, Part, Told
from tests.bench.whole.measured import Track, Used, Whole, dumped, loaded, priced
from tests.bench.whole.raw import Event, arrivals, orders_of, prices_of, rows_of
from tests.bench.whole.report import report
from tests.kafka.fixtures import SharedKafka

SIZE = Size(400, 200)
TOLD = Told("make bench-whole", "two cores", "Flink 2", ["1", "2"])


def _row(number: int, price_cents: int = 5) -> Priced:
    return Priced("k", "k", f"o{number:09d}", 2, price_cents, 2 * price_cents, number)


def test_rows_in_any_order_agree() -> None:
    wanted = Wanted(3, [_row(0), _row(2)])
    found = wanted.compare([_row(2), _row(0)])
    assert found == Agreement(rows=2, missing=0, other=0, doubled=0, surplus=0)
    assert found.is_whole


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        ([_row(0)], {"missing": 1}),
        ([_row(0), _row(2, price_cents=6)], {"other": 1}),
        ([_row(0), _row(2), _row(2)], {"doubled": 1}),
        ([_row(0), _row(1), _row(2)], {"surplus": 1}),
        ([_row(0), _row(2), _row(7)], {"surplus": 1}),
        ([_row(0), _row(2)._replace(timestamp_ms=3)], {"other": 1}),
    ],
)
def test_each_difference_is_counted(rows: Sequence[Priced], difference: dict[str, int]) -> None:
    none = {"missing": 0, "other": 0, "doubled": 0, "surplus": 0}
    found = Wanted(3, [_row(0), _row(2)]).compare(rows)
    assert found == Agreement(rows=len(rows), **(none | difference))
    assert not found.is_whole


def test_an_order_has_the_newest_price_of_its_product_that_is_not_newer() -> None:
    prices = [
        Event(b"a", b'{"price_cents":5}', 2, b"p0"),
        Event(b"b", b'{"price_cents":7}', 4, b"p1"),
        Event(b"a", b'{"price_cents":9}', 6, b"p2"),
    ]
    orders = [
        Event(key, b'{"order_id":"x","quantity":3,"customer":"c"}', time_ms, b"o%d" % time_ms)
        for key, time_ms in ((b"a", 1), (b"a", 3), (b"b", 5), (b"a", 7))
    ]
    assert [*rows_of(orders, prices)] == [
        Priced("a", "a", "o3", 3, 5, 15, 3),
        Priced("b", "b", "o5", 3, 7, 21, 5),
        Priced("a", "a", "o7", 3, 9, 27, 7),
    ]


def test_no_two_records_share_a_time_and_times_never_fall() -> None:
    random = np.random.default_rng(1)
    for events, parity in ((prices_of(random, SIZE, 9), 0), (orders_of(random, SIZE, 9), 1)):
        times_ms = [event.time_ms for event in events]
        assert times_ms == sorted(set(times_ms))
        assert {(time_ms - START_MS) % 2 for time_ms in times_ms} == {parity}


def test_the_first_of_an_id_is_the_oldest_and_comes_within_the_grace() -> None:
    random = np.random.default_rng(1)
    orders = orders_of(random, SIZE, 9)
    arrived = [*arrivals(random, orders)]
    first: dict[bytes, Event] = {}
    latest_ms, is_out_of_order = 0, False
    for event in arrived:
        if event.id in first:
            assert first[event.id].time_ms <= event.time_ms
        else:
            first[event.id] = event
            assert event.time_ms > latest_ms - raw.GRACE_MS
            is_out_of_order |= event.time_ms < latest_ms
        latest_ms = max(latest_ms, event.time_ms)
    assert is_out_of_order
    assert len(arrived) > len(orders)
    assert sorted(first.values(), key=lambda event: event.time_ms) == orders


def _run(who: str, number: int, warm_cpu_s: float, **differs: int) -> Whole:
    used = Used(9.0, {"Java": 10.0}, 600, {"Java": warm_cpu_s}, {"Java": 3 << 20})
    none = Agreement(rows=800, missing=0, other=0, doubled=0, surplus=0)
    return Whole(who, 1_000, 500, number, used, none._replace(**differs))


def test_the_page_names_the_worst_round_and_what_differs() -> None:
    runs = [
        *(_run("headrace", 0, 3.0), _run("headrace", 1, 6.0)),
        *(_run("flink", 0, 6.0), _run("flink", 1, 9.0, missing=27, other=4)),
        *(_run("streams", 0, 3.0), _run("streams", 1, 3.0)._replace(round=2)),
    ]
    lines = report(Kept(rounds=Part(TOLD, runs))).splitlines()
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")
    ]
    by_who = {each[0]: each for each in cells if len(each) == 11}
    ours, flink, streams = (
        by_who[title]
        for title in ("headrace, sidecars and Spark job", "Flink SQL", "Kafka Streams")
    )
    assert ours[2:6] == ["100", "150", "", ""]
    assert flink[4:6] == ["1.75x", "1.50x, round 2"]
    assert flink[-1] == "no: 27 missing, 4 other"
    assert streams[4:6] == ["1.00x", "1.00x, round 1"]
    assert (ours[-1], streams[-1]) == ("yes", "yes")


def test_a_run_without_a_steady_part_is_too_short_to_compare() -> None:
    short = _run("flink", 0, 0.0)
    short = short._replace(used=short.used._replace(steady_orders=0))
    page = report(Kept(rounds=Part(TOLD, [_run("headrace", 0, 3.0), short])))
    assert "| Flink SQL | 1,000 | 100 | too short |  |  |" in page


def test_the_picture_has_a_bar_of_all_and_one_of_what_is_warm_for_each_contestant() -> None:
    short = _run("flink", 0, 0.0)
    short = short._replace(used=short.used._replace(steady_orders=0))
    picture = whole_chart([_run("headrace", 0, 3.0), _run("headrace", 1, 5.0), short])
    assert picture.count("headrace, sidecars and Spark job") == 2
    # A run that is too short has no warm part.
    assert picture.count("Flink SQL") == 1
    assert "Kafka Streams" not in picture


def test_a_run_is_read_as_it_was_written() -> None:
    run = _run("flink", 1, 9.0, missing=27)
    assert loaded(json.loads(json.dumps(dumped(run)))) == run


@pytest.mark.long("spark", why="it runs two sidecars and the job over ten micro-batches")
def test_headrace_writes_the_right_rows(kafka: SharedKafka, tmp_path: Path) -> None:
    filled = raw.fill(kafka.bootstrap_servers, Size(2_000, 1_000))
    folder = tmp_path / "whole"
    track = Track(filled.topics, raw.GRACE_MS, kafka.bootstrap_servers, "whole", folder)
    used = headrace.run(track, filled)
    rows = priced(kafka.bootstrap_servers, track.sink)
    assert filled.wanted.compare(rows).is_whole
    batches = [
        file for file in (folder / "checkpoint" / "commits").iterdir() if file.name.isdigit()
    ]
    assert len(batches) == 10
    assert set(used.cpu_seconds) == set(used.steady_cpu_seconds) == set(used.memory_bytes_max)
