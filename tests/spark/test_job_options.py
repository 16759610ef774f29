"""Each option of a job's file, through the whole job: topics, a restart, and topics again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.contracts.correction import CORRECTED_HEADER
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.spark.driver import Driver
from tests.spark.kill import run_jobs

pytestmark = pytest.mark.long("spark", why="five jobs run five times")

WITHIN_S = 900
COLD = "with a cold history"
OPTIONS: dict[str, dict[str, object]] = {
    "at once": {"release": "stream-time"},
    "at once, unmatched too": {"release": "stream-time", "join": "left"},
    "after a grace": {"release": "stream-time", "grace": "10ms"},
    "by the inputs' own times": {"release": "progress"},
    "with corrections": {"release": "stream-time", "corrections": True},
    COLD: {"release": "stream-time", "join": "left"},
}
HOUR_MS = 3_600_000
SPARK = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
Found = dict[str, list[tuple[str, int | None]]]


class Shop:
    """Two topics that no sidecar wrote, and a job for each choice."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._clients = Clients(servers)
        self._folder = folder
        self._topics = {name: fresh_name(name) for name in ("prices", "orders")}
        for topic in self._topics.values():
            self._clients.make_topic(topic, 1, cleaned_topic(topic).settings())
        self._files = {name: self._write_job(servers, name) for name in OPTIONS}
        self._runs = 0

    def _write_job(self, servers: str, name: str) -> Path:
        job = fresh_name("priced")
        said = {
            "job": "orders-prices",
            "name": job,
            "servers": servers,
            "checkpoint": str(self._folder / job),
            "inputs": {side: {"topic": topic} for side, topic in self._topics.items()},
            "retention": "1h",
            "tasks": 2,
            "shuffle-partitions": 1,
            "sink": {"kafka": {"topic": job, "partitions": 1}},
            "late": {"topic": f"{job}.late", "partitions": 1},
            "spark": SPARK,
            **OPTIONS[name],
        }
        if name == COLD:
            said["cold-history"] = {"folder": str(self._folder / "cold")}
        file = self._folder / f"{job}.yaml"
        file.write_text(yaml.safe_dump(said))
        return file

    def send(self, side: str, product: str, at_ms: int, value: dict[str, Any]) -> None:
        """Write a price or an order."""
        said = json.dumps(value).encode()
        record = Record(product.encode(), said, at_ms, (), "", 0, None)
        self._clients.produce(self._topics[side], [record])

    def order(self, order_id: str, at_ms: int, product: str = "p") -> None:
        """Write an order."""
        self.send("orders", product, at_ms, {"order_id": order_id, "quantity": 1})

    def run(self, *names: str) -> None:
        """Run these jobs, or all, over what is there, from their checkpoints."""
        self._runs += 1
        files = [self._files[name] for name in names or self._files]
        log_file = self._folder / f"run-{self._runs}.log"
        driver = Driver(log_file, run_jobs, files, once=True)
        assert driver.wait(WITHIN_S) == 0, driver.log

    def found(self, suffix: str = "") -> Found:
        """Read each job's topic: orders and their prices."""
        return {name: self._read(file.stem + suffix) for name, file in self._files.items()}

    def marked(self) -> Found:
        """Of these, those that say that they correct an earlier row."""
        return {name: self._read(file.stem, marked=True) for name, file in self._files.items()}

    def _read(self, topic: str, *, marked: bool = False) -> list[tuple[str, int | None]]:
        records = self._clients.consume_all(topic)
        rows = [
            json.loads(one.value or b"")
            for one in records
            if not marked or CORRECTED_HEADER in one.headers
        ]
        return [(row["order_id"], row.get("price_cents")) for row in rows]


@pytest.fixture(scope="module")
def runs(kafka: SharedKafka, tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """The jobs' topics after each run, and in the end the late and corrected rows."""
    shop = Shop(kafka.bootstrap_servers, tmp_path_factory.mktemp("options"))
    shop.send("prices", "p", 1, {"price_cents": 100})
    shop.order("first", 20)
    shop.run()
    before = shop.found()
    shop.send("prices", "p", 15, {"price_cents": 200})
    shop.order("second", 31)
    shop.order("late", 5)
    shop.order("unknown", 32, product="q")
    shop.run()
    stood = [before, shop.found(), shop.found(".late"), shop.marked()]
    shop.send("prices", "p", 2 * HOUR_MS, {"price_cents": 300})
    shop.send("prices", "p", 12, {"price_cents": "no number, so it is dead"})
    shop.order("beside a dead price", 13)
    shop.order("forgotten", 10)
    shop.order("forgotten too", 25)
    shop.order("never priced", 5, product="q")
    shop.order("remembered", 2 * HOUR_MS + 1)
    shop.run(COLD)
    shop.send("prices", "p", 8, {"price_cents": 150})
    shop.order("older than all", 0)
    shop.order("forgotten as well", 10)
    shop.run(COLD)
    return [*stood, shop.found()]


def test_without_a_grace_an_order_meets_what_has_come(runs: list[Found]) -> None:
    before, after, late, marked, _ = (one["at once"] for one in runs)
    assert before == [("first", 100)]
    assert after == [("first", 100), ("second", 200), ("late", 100)]
    assert late == [], "nobody promised to wait"
    assert marked == []


def test_a_left_join_keeps_what_meets_nothing(runs: list[Found]) -> None:
    _, after, *_ = (one["at once, unmatched too"] for one in runs)
    assert sorted(after) == [("first", 100), ("late", 100), ("second", 200), ("unknown", None)]


def test_with_a_grace_an_order_waits_over_a_restart(runs: list[Found]) -> None:
    before, after, late, *_ = (one["after a grace"] for one in runs)
    assert before == []
    assert after == [("first", 200), ("late", 100)], "the others wait"
    assert late == [("late", None)], "a copy of the order alone"


def test_without_a_sidecar_an_input_is_as_far_as_its_records(runs: list[Found]) -> None:
    before, after, late, *_ = (one["by the inputs' own times"] for one in runs)
    assert before == [], "the prices are not as far"
    assert after == [("late", 100)], "the prices are at 15, and the orders wait for them"
    assert late == []


def test_a_price_that_comes_late_corrects_what_left_before(runs: list[Found]) -> None:
    before, after, _, marked, _ = (one["with corrections"] for one in runs)
    assert before == [("first", 100)]
    assert sorted(after) == [("first", 100), ("first", 200), ("late", 100), ("second", 200)]
    assert marked == [("first", 200)]


def test_versions_that_state_has_forgotten_are_found_in_a_cold_history(runs: list[Found]) -> None:
    *_, found = (one[COLD] for one in runs)
    assert sorted(found[-7:]) == [
        ("beside a dead price", 100),
        ("forgotten", 100),
        ("forgotten as well", 150),
        ("forgotten too", 200),
        ("never priced", None),
        ("older than all", None),
        ("remembered", 300),
    ]
    assert len(found) == 11
