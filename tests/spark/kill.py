"""Kills the Spark driver at random moments: `python -m tests.spark.kill --kills 50`.

Raw topics are fed all the time, sidecars clean them, and one driver after another joins them, to
Kafka, Delta and Parquet, until it is killed. At the end every row must be in each sink, once.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Event, Thread

import yaml

from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.jobs.again import has_ended
from headrace.spark_jobs.jobs.run import queries
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.write.kafka import Written
from tests.kafka.clients import Clients, fresh_name
from tests.runtime.sidecar import MakePipeline, Pipeline, making_pipelines
from tests.spark.driver import QUICK_JAVA, Driver
from tests.spark.orders import (
    GRACE_MS,
    PARTITIONS,
    Priced,
    Shop,
    rows_in_table,
    rows_in_topic,
)
from tests.spark.tables import live_rows, rows_of

OPERATORS = (
    f"reorder: {{grace: {GRACE_MS}ms, late: topic}}",
    "deduplicate: {by: key+id, id: header.id, interval: 1h}",
)
SOURCE = "idle: never"
"""However long a machine rests, no record that a reorder holds is late for the job."""
QUERY = """
    SELECT o.key AS product, order_id, quantity, price_cents,
        try_multiply(quantity, price_cents) AS total_cents
    FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.key = p.key
"""
CHUNK = 20
FEED_EVERY_S = 0.5
STRIKE_WITHIN_STARTS = 1.5
"""How long a driver may live, in the time that it takes to start one."""
_STARTED = "all queries run"
_LOOK_EVERY_S = 0.05
CLEANED_WITHIN_S = 300.0
_SPARK = {
    # Made for tables of many files; each of them is a task.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
}


@dataclass
class World:
    """Two pipelines, three jobs that join what they clean, and all that was sent."""

    folder: Path
    servers: str
    orders: Pipeline
    prices: Pipeline
    shop: Shop
    name: str = field(default_factory=lambda: fresh_name("priced"))

    @property
    def delta(self) -> Path:
        """Where the table is."""
        return self.folder / "delta"

    @property
    def parquet(self) -> Path:
        """Where the folders of micro-batches are."""
        return self.folder / "parquet"

    def write_jobs(self) -> list[Path]:
        """A file for each job: one of headrace's to Kafka and to Parquet, and SQL to Delta."""
        orders, prices = (
            {"topic": one.sink, "pipeline": one.name} for one in (self.orders, self.prices)
        )
        shipped: dict[str, object] = {
            "job": "orders-prices",
            "inputs": {"orders": orders, "prices": prices},
            "retention": "365d",
        }
        to_kafka: dict[str, object] = {"kafka": {"topic": self.name, "partitions": PARTITIONS}}
        to_parquet: dict[str, object] = {"parquet": {"folder": str(self.parquet)}}
        jobs: list[dict[str, object]] = [
            {**shipped, **self._job(self.name, to_kafka)},
            {**shipped, **self._job(f"{self.name}-parquet", to_parquet)},
            {
                "query": QUERY,
                "streams": {"orders": {**orders, "schema": "order_id STRING, quantity BIGINT"}},
                "tables": {
                    "prices": {**prices, "schema": "price_cents BIGINT", "retention": "365d"}
                },
                **self._job(f"{self.name}-table", {"delta": {"folder": str(self.delta)}}),
            },
        ]
        files = []
        for job in jobs:
            file = self.folder / f"{job['name']}.yaml"
            file.write_text(yaml.safe_dump(job))
            files.append(file)
        return files

    def _job(self, name: str, sink: dict[str, object]) -> dict[str, object]:
        return {
            "name": name,
            "servers": self.servers,
            "checkpoint": str(self.folder / f"{name}-checkpoint"),
            "tasks": 4,
            "shuffle-partitions": 2,
            "sink": sink,
            "spark": _SPARK,
        }

    def send(self, chunk: tuple[list[Record], list[Record]]) -> None:
        """Produce orders and prices."""
        orders, prices = chunk
        self.orders.produce(orders)
        self.prices.produce(prices)

    def batches(self) -> int:
        """How many micro-batches were ever begun."""
        return len(list(self.folder.glob("*-checkpoint/offsets/[0-9]*")))

    def written(self) -> dict[str, Counter[Priced]]:
        """Read every sink, row by row."""
        return {
            "kafka": rows_in_topic(Clients(self.servers).consume_all(self.name)),
            "delta": rows_in_table(live_rows(self.delta)),
            "parquet": rows_in_table(rows_of(self._parquet_files())),
        }

    def _parquet_files(self) -> list[Path]:
        """The files that a reader of the folder sees: none of an attempt that a kill has ended."""
        files = (file.relative_to(self.parquet) for file in self.parquet.rglob("*.parquet"))
        seen = [file for file in files if not any(part[0] in "._" for part in file.parts)]
        return [self.parquet / file for file in seen]


def run_jobs(files: list[Path], *, once: bool) -> None:
    """The life of one driver: all jobs, in one session."""
    loaded = [load_job(file) for file in files]
    config = loaded[0][1]
    spark = open_session(
        "kill",
        master="local[2]",
        shuffle_partitions=config.shuffle_partitions,
        settings=config.spark,
    )
    jobs = [queries(spark, *each, once=once, note=_tell) for each in loaded]
    begun = [next(job) for job in jobs]
    print(_STARTED, flush=True)
    for first, job in zip(begun, jobs, strict=True):
        for query in chain([first], job):
            has_ended(query)
    spark.stop()


def _tell(batch_id: int, written: Written) -> None:
    print("wrote", batch_id, written.records, written.replayed, flush=True)


def problems_of(expected: Counter[Priced], written: dict[str, Counter[Priced]]) -> list[str]:
    """Return the lost and doubled rows, a line each sink and kind."""
    problems = []
    for sink, rows in written.items():
        wanted = expected
        if sink != "kafka":
            wanted = Counter(row._replace(headers=()) for row in expected.elements())
        for what, found in (("lost", wanted - rows), ("doubled or wrong", rows - wanted)):
            if found:
                example = next(iter(found))
                problems.append(f"{sink}: {found.total()} {what}, such as {example}")
    return problems


def run(world: World, kills: int, tell: Callable[[str], None]) -> list[str]:
    """Kill so many drivers, let the last one finish, and judge; what is wrong, a line each."""
    chance = random.Random(world.shop.seed)
    files = world.write_jobs()
    begin(world)
    with _feeding(world):
        for number in range(1, kills + 1):
            log_file = world.folder / f"driver-{number}.log"
            driver = Driver(log_file, run_jobs, files, once=False)
            tell(f"kill {number}: {_strike(world, driver, chance)}")
    end(world)
    last = Driver(world.folder / "driver-last.log", run_jobs, files, once=True)
    if last.wait(3 * CLEANED_WITHIN_S) != 0:
        return [f"the last driver ended with {last.exit_code}:\n{last.log}"]
    expected = world.shop.expected()
    tell(f"{expected.total()} rows expected, {world.shop.late} records were late")
    return problems_of(expected, world.written())


def begin(world: World) -> None:
    """Have both sidecars clean the first records."""
    for pipeline in (world.orders, world.prices):
        pipeline.start()
    world.send(world.shop.chunk(30 * CHUNK))
    for pipeline in (world.orders, world.prices):
        pipeline.wait_until_done(CLEANED_WITHIN_S)


def end(world: World) -> None:
    """Have both sidecars clean the last records, and end."""
    world.send(world.shop.flush())
    for pipeline in (world.orders, world.prices):
        pipeline.wait_until_done(CLEANED_WITHIN_S)
        assert pipeline.sidecars[0].stop() == 0


def _strike(world: World, driver: Driver, chance: random.Random) -> str:
    """Kill a driver some time after its queries have begun.

    The time is measured in that which it took until then, so that a busy machine strikes as deep.
    """
    before = world.batches()
    began_at = time.monotonic()
    while _STARTED not in driver.log:
        if driver.exit_code is not None:
            message = f"the driver ended by itself with {driver.exit_code}:\n{driver.log}"
            raise AssertionError(message)
        if time.monotonic() - began_at > CLEANED_WITHIN_S:
            driver.kill()
            message = f"no query after {CLEANED_WITHIN_S:g} s:\n{driver.log}"
            raise AssertionError(message)
        time.sleep(_LOOK_EVERY_S)
    time.sleep(chance.uniform(0, time.monotonic() - began_at) * STRIKE_WITHIN_STARTS)
    driver.kill()
    begun, wrote = world.batches() - before, driver.log.count("wrote ")
    return f"{begun} micro-batches begun, {wrote} written"


@contextmanager
def _feeding(world: World) -> Iterator[None]:
    """Send a chunk every now and then, until the end of the block."""
    over = Event()

    def feed() -> None:
        while not over.wait(FEED_EVERY_S):
            world.send(world.shop.chunk(CHUNK))

    thread = Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def make_world(make_pipeline: MakePipeline, servers: str, folder: Path, seed: int) -> World:
    """Pipelines and jobs on a broker; nothing runs yet."""
    orders, prices = (
        make_pipeline(*OPERATORS, partitions=PARTITIONS, source=SOURCE, servers=servers)
        for _ in range(2)
    )
    return World(folder, servers, orders, prices, Shop(seed))


def main() -> int:
    """Run what the arguments say; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, help="the stream and the moments")
    arguments = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
    folder = Path(tempfile.mkdtemp(prefix="spark-kill-"))
    print(f"seed {seed}, in {folder}", flush=True)
    broker = EmbeddedBroker(folder / "kafka")
    broker.start()
    try:
        with making_pipelines(lambda: broker.bootstrap_servers, folder) as make_pipeline:
            world = make_world(make_pipeline, broker.bootstrap_servers, folder, seed)
            problems = run(world, arguments.kills, lambda line: print(line, flush=True))
    finally:
        broker.stop()
    print("\n".join(problems) if problems else "nothing lost, nothing doubled")
    if not problems:
        shutil.rmtree(folder)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
