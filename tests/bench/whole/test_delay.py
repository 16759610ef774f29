"""Records that come in have one right answer, and the page tells the delay of each contestant."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bench.spark.watched import Failed, running
from tests.bench.steady import Due
from tests.bench.whole import delay, kept, raw
from tests.bench.whole.agreement import Agreement
from tests.bench.whole.delay import PRODUCTS, Delayed, Load, order_due, price_due
from tests.bench.whole.kept import Kept, Part, Told
from tests.bench.whole.measured import Track, Used, Whole
from tests.bench.whole.report import report
from tests.kafka.fixtures import SharedKafka

TOLD = Told("make bench-whole", "two cores", "Flink 2", ["1", "2"])
RIGHT = Agreement(rows=7_000, missing=0, other=0, doubled=0, surplus=0)


def _delayed(who: str, number: int, p99_ms: float, agreement: Agreement = RIGHT) -> Delayed:
    return Delayed(
        who, number, Load(100, 60.0, 30.0), 3_000, 2_500.0, p99_ms, 0.5, 1_000.0, agreement
    )


def _race() -> Part[Whole]:
    used = Used(9.0, {"Java": 10.0}, 600, {"Java": 3.0}, {"Java": 3 << 20})
    return Part(TOLD, [Whole("headrace", 1_000, 500, 0, used, RIGHT)])


@pytest.mark.parametrize("due_ms", [1_000, 1_001, 1_002, 1_003])
def test_an_order_and_a_price_of_the_same_moment_differ_and_neither_is_of_the_future(
    due_ms: int,
) -> None:
    order, price = order_due(7, due_ms), price_due(7, due_ms)
    assert (order.time_ms % 2, price.time_ms % 2) == (1, 0)
    assert all(0 <= due_ms - event.time_ms <= 1 for event in (order, price))


def test_each_product_has_prices_but_one_that_has_orders_alone() -> None:
    ordered = {order_due(number, 10 * number).key for number in range(500)}
    priced = {price_due(number, 50 * number).key for number in range(100)}
    assert len(priced) == PRODUCTS
    assert len(ordered - priced) == 1
    assert priced < ordered


def test_a_price_that_is_written_later_than_the_grace_judges_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written_at_ms = iter((1_500.0, 1_000.0 + delay.GRACE_MS))
    monkeypatch.setattr(delay, "now_ms", lambda: next(written_at_ms))
    nowhere = SimpleNamespace(write=lambda _event: None)
    monkeypatch.setattr(delay, "Writer", lambda *_, **__: nowhere)
    prices = delay.Incoming("127.0.0.1:1", "prices", price_due)
    prices.write(Due(range(1), 1_500, 1_000.0, 20))
    prices.refuse_late()
    prices.write(Due(range(1), 3_000, 1_000.0, 20))
    with pytest.raises(Failed, match=r"`prices` was written 2\.0 s late, and the grace is 2 s;"):
        prices.refuse_late()


def test_the_page_has_the_middle_round_and_names_what_differs() -> None:
    wrong = RIGHT._replace(missing=3)
    runs = [
        *(_delayed("headrace", number, p99) for number, p99 in enumerate((3_900.0, 3_100.0))),
        *(_delayed("flink", number, p99) for number, p99 in enumerate((3_700.0, 3_600.0))),
        _delayed("streams", 0, 3_050.0, wrong),
    ]
    page = report(Kept(delay=Part(TOLD, runs)))
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    ours, flink, streams = (each[1:] for each in cells)
    assert ours == [
        "100",
        "2,500",
        "3,500",
        "3,100 to 3,900",
        "0.50",
        "1,000",
        "6,000",
        "14,000",
        "yes",
    ]
    assert flink[1:4] == ["2,500", "3,650", "3,600 to 3,700"]
    assert (streams[2:4], streams[-1]) == (["3,050", ""], "no: 3 missing")
    assert "becomes\nwarm for 60 s, and is measured for 30 s" in page


def test_the_page_keeps_the_rounds_beside_the_delay() -> None:
    rounds = report(Kept(rounds=_race()))
    both = report(Kept(_race(), Part(TOLD, [_delayed("flink", 0, 3_600.0)])))
    assert set(rounds.splitlines()) < set(both.splitlines())


def test_both_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = Kept(_race(), Part(TOLD, [_delayed("flink", 1, 3_600.0)]))
    assert kept.read(tmp_path) == Kept()
    kept.write(tmp_path, found)
    assert kept.read(tmp_path) == found
    assert set(json.loads((tmp_path / "whole.json").read_text("utf-8"))) == {"rounds", "delay"}


def test_a_process_that_ends_before_the_block_fails_it_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such topic')"]
    with pytest.raises(Failed, match="no such topic"), running(command, tmp_path / "log") as ended:
        ended.wait()


@pytest.mark.long("spark", why="it runs two sidecars and the job by the clock")
def test_headrace_prices_what_comes_in(kafka: SharedKafka, tmp_path: Path) -> None:
    servers = kafka.bootstrap_servers
    topics = raw.make_topics(servers, "delay")
    track = Track(topics, delay.GRACE_MS, servers, "delay", tmp_path / "delay")
    found = delay.measure("headrace", 0, track, Load(100, 1.0, 5.0))
    assert found.agreement.is_whole
    assert 0 < found.orders < found.agreement.rows
    assert delay.GRACE_MS < found.p50_ms <= found.p99_ms
