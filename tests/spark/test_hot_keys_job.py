"""A job with a hot key, as users start it: each order is priced once, by several tasks."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from headrace.contracts.record import Record
from headrace.spark_jobs.jobs.move import headers_of
from headrace.spark_jobs.versioned.layout import decode_numbers
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.oracles.versioned import joined_on_time
from tests.pages import installed
from tests.runtime.sidecar import record
from tests.spark.driver import QUICK_JAVA

PARTITIONS = 2
TASKS = 4
ORDERS = 400
END_MS = 1_000_000
HOT = b"p0"
SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
}
Priced = Counter[tuple[str, int]]


class Shop:
    """Prices and orders, most of them of one product, and the file of a job that joins them."""

    def __init__(self, kafka: SharedKafka, folder: Path) -> None:
        """Make both topics, which no sidecar writes, and send what is there when the job begins."""
        self._kafka = kafka
        self._folder = folder
        self.name = fresh_name("hot")
        self.checkpoint = folder / "checkpoint"
        self.hot_keys = [HOT.decode(), "p9"]
        self._sent: dict[str, list[Record]] = {"prices": [], "orders": []}
        for topic in self._sent:
            kafka.clients.make_topic(self._topic(topic), PARTITIONS, {"retention.ms": "-1"})

    def _topic(self, of: str) -> str:
        return f"{self.name}.{of}"

    def send(self, begins_ms: int) -> None:
        """Send an order each millisecond, and now and then a price; then the end of this part."""
        times = range(begins_ms, begins_ms + ORDERS)
        prices = [
            record(b"p%d" % (at % 3), json.dumps({"price_cents": at}).encode(), at)
            for at in times
            if at % 40 < 3
        ]
        orders = [
            record(
                HOT if at % 10 else b"p%d" % (at % 3),
                json.dumps({"order_id": f"o{at}", "quantity": 1}).encode(),
                at,
            )._replace(partition=at % PARTITIONS)
            for at in times
        ]
        self._produce("prices", [*prices, record(HOT, b"not a price", begins_ms)])
        self._sent["prices"] += prices
        self._produce("orders", orders)
        self._sent["orders"] += orders

    def end(self) -> None:
        """Move both inputs past all orders."""
        price = json.dumps({"price_cents": 1}).encode()
        self._produce("prices", [record(b"last", price, END_MS)])
        order = json.dumps({"order_id": "last", "quantity": 1}).encode()
        self._produce("orders", [record(b"last", order, END_MS)])

    def _produce(self, topic: str, records: list[Record]) -> None:
        self._kafka.clients.produce(self._topic(topic), records)

    def run(self) -> tuple[int, str]:
        """Run the job over what is there; how it ended, and what it said."""
        file = self._folder / "job.yaml"
        said = {
            "job": "orders-prices",
            "name": self.name,
            "servers": self._kafka.bootstrap_servers,
            "checkpoint": str(self.checkpoint),
            "inputs": {one: {"topic": self._topic(one)} for one in self._sent},
            "retention": "1h",
            "tasks": TASKS,
            "shuffle-partitions": 2,
            "hot-keys": self.hot_keys,
            "sink": {"kafka": {"topic": self._topic("priced"), "partitions": 2}},
            "spark": SPARK,
        }
        file.write_text(yaml.safe_dump(said))
        return self.call(str(file), "--once", "--master", "local[2]")

    def call(self, *arguments: str) -> tuple[int, str]:
        """Call `headrace spark`; how it ended, and what it said."""
        ended = subprocess.run(
            ["headrace", "spark", *arguments],  # noqa: S607 - of the environment that we give it
            cwd=self._folder,
            env=installed(),
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.returncode, " ".join((ended.stdout + ended.stderr).split())

    def found(self) -> Priced:
        """Return the priced orders in the topic."""
        rows = [
            json.loads(one.value or b"")
            for one in self._kafka.clients.consume_all(self._topic("priced"))
        ]
        return Counter((row["order_id"], row["price_cents"]) for row in rows)

    def wanted(self) -> Priced:
        """Return what must have left once both inputs have ended."""
        wanted: Priced = Counter()
        for order in self._sent["orders"]:
            price = joined_on_time(self._sent["prices"], order)
            if price is not None:
                order_id = json.loads(order.value or b"")["order_id"]
                wanted[order_id, json.loads(price)["price_cents"]] += 1
        return wanted

    def dead(self) -> int:
        """Return how many prices are dead."""
        return len(self._kafka.clients.consume_all(f"{self._topic('prices')}.dead"))

    def sent(self, topic: str) -> int:
        """Return how many records were sent that are no dead ones, the last ones aside."""
        return len(self._sent[topic])


@pytest.mark.long("drivers", why="three drivers, one after the other, and a move")
def test_orders_of_a_hot_key_are_priced_once_by_several_tasks(
    kafka: SharedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(kafka, tmp_path)
    shop.send(0)
    code, said = shop.run()
    assert code == 0, said
    assert 0 < len(shop.found()) < ORDERS, "the last ones wait"
    shop.send(ORDERS)
    shop.end()
    code, said = shop.run()
    assert code == 0, said
    assert shop.found() == shop.wanted()
    assert shop.dead() == 2
    ((_, headers),) = headers_of(spark, str(shop.checkpoint)).items()
    tasks = [decode_numbers(header) for header in headers.values()]
    took = [one.get("orders-prices:taken", 0) for one in tasks]
    assert min(took) > ORDERS // TASKS, "each task has a part of the hot orders"
    assert sum(took) == shop.sent("orders") + 1
    assert sum(one.get("prices:taken", 0) for one in tasks) == shop.sent("prices") + 1
    assert sum(one.get("prices:kept", 0) for one in tasks) == shop.sent("prices") + 1
    assert sum(one.get("task:dead", 0) for one in tasks) == 2
    records = shop.sent("orders") + shop.sent("prices") + 2
    assert sum(one.get("task:records", 0) for one in tasks) == records
    code, said = shop.call("move", str(shop.checkpoint), str(tmp_path / "new"), "--tasks", "2")
    assert (code, "this checkpoint was written with `hot-keys`" in said) == (4, True), said
    shop.hot_keys.append("p1")
    shop.send(2 * END_MS)
    code, said = shop.run()
    assert (code, "`hot-keys` had other keys or none" in said) == (4, True), said
