"""One product over topics of many partitions, most of them empty: orders leave when all is quiet.

The first test runs sidecars. In the others the rows of progress are written as sidecars write them,
so that each state can be met.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from headrace.contracts.progress import LAYOUT, CleanedBy, Progress, cleaned_by_row, progress_row
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic, late_topic, progress_topic
from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.run import run_as
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.conftest import make_pipeline
from tests.runtime.sidecar import MakePipeline, Pipeline, record
from tests.spark.driver import QUICK_JAVA, Driver

pytestmark = pytest.mark.long("spark", why="which partitions fall quiet is drawn")

PARTITIONS = {"prices": 12, "orders": 4}
PRODUCT = b"the only one"
AT = {"prices": 5, "orders": 3}
"""Where it lives."""
PRODUCTS = [b"0", b"1", b"2"]
"""And these, each in a partition of its own."""
SIDES = sorted(PARTITIONS)
STEPS = 20
NOTHING_YET = Progress(0, -1, -1, "raw", 0, None, is_idle=True)
WITHIN_S = 300.0
_LOOK_EVERY_S = 0.05


@dataclass
class Shop:
    """Two cleaned topics, a job that joins them, and what it says."""

    clients: Clients
    folder: Path
    name: str = field(default_factory=lambda: fresh_name("priced"))
    progress: dict[tuple[str, int], Progress] = field(default_factory=dict)

    def topic(self, side: str) -> str:
        """The cleaned topic of a side."""
        return f"{self.name}.{side}"

    def make_topics(self) -> None:
        """As sidecars make theirs, before the first commit; and those that the job writes."""
        for side, partitions in PARTITIONS.items():
            for spec in (cleaned_topic(self.topic(side)), progress_topic(self.topic(side))):
                self.clients.make_topic(spec.name, partitions, spec.settings())
        self.make_results()

    def make_results(self) -> None:
        """The topics that the job writes."""
        for spec in (cleaned_topic(self.name), late_topic(f"{self.name}.late")):
            self.clients.make_topic(spec.name, 1, spec.settings())

    def begin(self, side: str) -> None:
        """A sidecar's first commit: its name, and the partitions that are empty."""
        self._tell(side, cleaned_by_row(CleanedBy(side, LAYOUT, "source", {})), 0)
        for partition in range(PARTITIONS[side]):
            self._tell(side, progress_row(NOTHING_YET._replace(partition=partition)), partition)

    def commit(
        self, side: str, at_ms: int, value: dict[str, Any], product: bytes = PRODUCT
    ) -> None:
        """A record of a product, and how far its partition is with it."""
        partition = self.home(side, product)
        before = self.progress.get((side, partition), NOTHING_YET)
        one = Record(product, json.dumps(value).encode(), at_ms, (), "", partition, None)
        self.clients.produce_committed(self.topic(side), [one], fresh_name("t"))
        # Its transaction's marker takes an offset, too.
        last = 2 * before.source_offset
        highest_ms = max(at_ms, before.stream_time_ms)
        source_offset = before.source_offset + 1
        self._say(side, Progress(partition, highest_ms, highest_ms, "raw", source_offset, last))

    def home(self, side: str, product: bytes) -> int:
        """The partition in which a product lives."""
        return AT[side] if product == PRODUCT else int(product) % PARTITIONS[side]

    def fall_asleep(self, side: str, product: bytes = PRODUCT) -> None:
        """The partition of a product is idle, too."""
        before = self.progress[side, self.home(side, product)]
        self._say(side, before._replace(is_idle=True))

    def _say(self, side: str, progress: Progress) -> None:
        self.progress[side, progress.partition] = progress
        self._tell(side, progress_row(progress), progress.partition)

    def _tell(self, side: str, row: tuple[bytes, bytes], partition: int) -> None:
        name = progress_topic(self.topic(side)).name
        one = Record(*row, 1, (), name, partition, None)
        self.clients.produce_committed(name, [one], fresh_name("t"))

    def write_job(self, pipelines: Mapping[str, Pipeline] | None = None) -> Path:
        """README's job by progress, over these pipelines, or over what is written here."""
        file = self.folder / "priced.yaml"
        inputs = {side: {"topic": self.topic(side), "pipeline": side} for side in PARTITIONS}
        for side, pipeline in (pipelines or {}).items():
            inputs[side] = {"topic": pipeline.sink, "pipeline": pipeline.name}
        job = {
            "job": "orders-prices",
            "name": self.name,
            "servers": self.clients.servers,
            "checkpoint": str(self.folder / "checkpoint"),
            "inputs": inputs,
            "retention": "1h",
            "tasks": 3,
            "shuffle-partitions": 1,
            "sink": {"kafka": {"topic": self.name, "partitions": 1}},
            "late": {"topic": f"{self.name}.late", "partitions": 1},
            "spark": {
                "spark.ui.enabled": "false",
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": QUICK_JAVA,
            },
        }
        file.write_text(yaml.safe_dump(job))
        return file

    def priced(self, orders: int) -> list[tuple[str, int]]:
        """So many orders, each with the price that it met."""
        found = self.clients.consume(self.name, orders, within_s=WITHIN_S)
        rows = [json.loads(one.value or b"") for one in found]
        return [(row["order_id"], row["price_cents"]) for row in rows]


def run_it(file: Path) -> None:
    """The life of the job's driver."""
    run_as(*load_job(file), How("local[2]"))


__all__ = ["make_pipeline"]


@pytest.fixture
def shop(kafka: SharedKafka, tmp_path: Path) -> Shop:
    return Shop(Clients(kafka.bootstrap_servers), tmp_path)


@pytest.fixture
def driver(shop: Shop) -> Iterator[Driver]:
    running = Driver(shop.folder / "driver.log", run_it, shop.write_job())
    yield running
    running.kill()


def wait_until_said(driver: Driver, sentence: str) -> None:
    """Wait until the driver has said something."""
    until = time.monotonic() + WITHIN_S
    while sentence not in driver.log:
        assert driver.exit_code is None, driver.log
        assert time.monotonic() < until, driver.log
        time.sleep(_LOOK_EVERY_S)


def test_orders_leave_when_their_sidecars_are_quiet(
    shop: Shop, make_pipeline: MakePipeline
) -> None:
    # A reorder without `idle` holds the last record of each partition.
    operators = {"prices": "reorder: {grace: 1s, idle: 2s}", "orders": "reorder: {grace: 1s}"}
    pipelines = {
        side: make_pipeline(operators[side], partitions=PARTITIONS[side], source="idle: 2s")
        for side in PARTITIONS
    }
    shop.make_results()
    for pipeline in pipelines.values():
        pipeline.start()
    driver = Driver(shop.folder / "driver.log", run_it, shop.write_job(pipelines))
    prices, orders = pipelines["prices"], pipelines["orders"]

    def price(at_ms: int, cents: int) -> None:
        """The price of the product from a time on; it is cleaned when this is over."""
        before = len(prices.cleaned()) if prices.sink in prices.clients.topics() else 0
        value = json.dumps({"price_cents": cents}).encode()
        prices.produce([record(PRODUCT, value, at_ms, partition=AT["prices"])])
        prices.wait_for_cleaned(before + 1)

    def order(at_ms: int, name: str, partition: int = AT["orders"]) -> Record:
        value = json.dumps({"order_id": name, "quantity": 1}).encode()
        return record(PRODUCT, value, at_ms, partition=partition)

    try:
        price(1_000, 10)
        # No record comes behind this one: it is held for ever, and its partition is idle anyway.
        orders.produce([order(1_500, "only", partition=0)])
        orders.produce([order(2_000, "first"), order(3_500, "second")])
        assert shop.priced(1) == [("first", 10)]
        price(3_000, 30)
        orders.produce([order(5_000, "third")])
        # It has left the sidecar behind the first, and is on time: nothing has passed it.
        assert shop.priced(2)[1:] == [("second", 30)]
        assert shop.clients.consume_all(f"{shop.name}.late") == []
        assert driver.exit_code is None, driver.log
    finally:
        driver.kill()


def test_orders_of_one_product_leave_when_all_partitions_are_quiet(
    shop: Shop, driver: Driver
) -> None:
    wait_until_said(
        driver, f"the topic `{shop.topic('prices')}` is missing; waiting for its sidecar"
    )
    shop.make_topics()
    wait_until_said(driver, "waiting for the first commit of the sidecar of `prices`")
    shop.begin("prices")
    wait_until_said(driver, "waiting for the first commit of the sidecar of `orders`")
    shop.begin("orders")

    shop.commit("prices", 1_000, {"price_cents": 10})
    shop.commit("orders", 2_000, {"order_id": "first", "quantity": 1})
    shop.fall_asleep("orders")
    shop.fall_asleep("prices")
    assert shop.priced(1) == [("first", 10)]

    # The job waits again for a partition that wakes.
    shop.commit("orders", 3_000, {"order_id": "second", "quantity": 1})
    shop.commit("prices", 2_500, {"price_cents": 25})
    shop.fall_asleep("prices")
    shop.fall_asleep("orders")
    assert shop.priced(2)[1:] == [("second", 25)]

    # All that came has passed by now: this one is late, and met at its own time nevertheless.
    shop.commit("orders", 2_200, {"order_id": "late", "quantity": 1})
    assert shop.priced(3)[2:] == [("late", 10)]
    late = shop.clients.consume(f"{shop.name}.late", 1, within_s=WITHIN_S)
    assert [json.loads(one.value or b"")["order_id"] for one in late] == ["late"]


def test_partitions_that_fall_quiet_and_wake_at_random_agree_with_the_oracle(
    shop: Shop, driver: Driver
) -> None:
    shop.make_topics()
    for side in PARTITIONS:
        shop.begin(side)
    luck = Random(19)
    prices: dict[bytes, int] = {}
    met: dict[str, int] = {}
    awake: set[tuple[str, bytes]] = set()
    for step, side in enumerate(["prices"] * len(PRODUCTS) + luck.choices(SIDES, k=STEPS), 1):
        product = PRODUCTS[step % len(PRODUCTS)] if step <= len(PRODUCTS) else luck.choice(PRODUCTS)
        # Time goes on, so that nothing is late, whoever was left out meanwhile.
        if side == "prices":
            prices[product] = step
            shop.commit(side, step * 1_000, {"price_cents": step}, product)
        else:
            met[f"order {step}"] = prices[product]
            shop.commit(side, step * 1_000, {"order_id": f"order {step}", "quantity": 1}, product)
        awake.add((side, product))
        for each in luck.sample(sorted(awake), k=luck.randrange(len(awake))):
            shop.fall_asleep(*each)
            awake.remove(each)
    for each in sorted(awake):
        shop.fall_asleep(*each)
    found = shop.priced(len(met))
    # None is joined twice, and all that is quiet holds nothing back.
    assert sorted(found) == sorted(met.items())
    assert shop.clients.consume_all(f"{shop.name}.late") == []
    assert driver.exit_code is None, driver.log
