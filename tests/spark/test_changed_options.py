"""A micro-batch that was begun is finished as it was begun, whatever a job's file says by then."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from headrace.contracts.errors import ReplayDiffers, SinkOfAnotherQuery, StateOfOtherOptions
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.jobs.cold import refuse_another_topic
from headrace.spark_jobs.jobs.config import writer_of
from headrace.spark_jobs.jobs.run import JOBS
from headrace.spark_jobs.jobs.stamp import Begun, Stamp, digest_of, options_of, with_options
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.markers import Marker
from headrace.spark_jobs.write.transaction import check_marker, check_rows
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record
from tests.spark.driver import KILLED, Driver
from tests.spark.struck import CLOSED, SHUFFLE_PARTITIONS, Moment, run_struck
from tests.spark.tables import live_files, live_iceberg_files, rows_of

PRODUCTS = 12
ORDERS = 240
Sink = dict[str, Any]


class Job:
    """Orders and prices in two topics, and the file of a job that joins them."""

    def __init__(self, kafka: SharedKafka, folder: Path, sink: str) -> None:
        """The sink, `kafka` or one of the tables, stays empty."""
        self._kafka = kafka
        self._folder = folder
        self.name = fresh_name("struck")
        self.file = folder / "job.yaml"
        sinks: dict[str, Sink] = {
            "kafka": {"kafka": {"topic": f"{self.name}.priced", "partitions": 2}},
            **{
                one: {one: {"folder": str(folder / one)}} for one in ("delta", "iceberg", "parquet")
            },
        }
        self._sink = sinks[sink]
        self._number = 0
        self.tasks = 4
        self.checkpoint = folder / "checkpoint"
        for topic in ("orders", "prices"):
            kafka.clients.make_topic(f"{self.name}.{topic}", 2, {"retention.ms": "-1"})
        self.price(1_000)

    def price(self, time_ms: int) -> None:
        """Say the price of each product once more."""
        prices = [
            record(b"p%d" % one, json.dumps({"price_cents": one + 1}).encode(), time_ms)
            for one in range(PRODUCTS)
        ]
        self._kafka.clients.produce(f"{self.name}.prices", prices)

    def send(self) -> None:
        """More orders, of which the last seconds' are within grace."""
        sent = range(self._number, self._number + ORDERS)
        self._number += ORDERS
        orders = [
            record(
                b"p%d" % (one % PRODUCTS),
                json.dumps({"order_id": f"o{one}", "quantity": 1}).encode(),
                2_000 + 100 * one,
            )
            for one in sent
        ]
        self._kafka.clients.produce(f"{self.name}.orders", orders)

    def run(self, strike: Moment | None = None, *, grace: str | None, **options: bool) -> Driver:
        """A driver that has ended, by itself or struck; without a grace it releases by progress."""
        said = {
            "job": "tests.spark.struck",
            "name": self.name,
            "servers": self._kafka.bootstrap_servers,
            "checkpoint": str(self.checkpoint),
            "inputs": {one: {"topic": f"{self.name}.{one}"} for one in ("prices", "orders")},
            "retention": "1h",
            **({"release": "stream-time", "grace": grace} if grace else {"release": "progress"}),
            "tasks": self.tasks,
            "shuffle-partitions": SHUFFLE_PARTITIONS,
            "sink": self._sink,
        }
        self.file.write_text(yaml.safe_dump(said))
        log = self._folder / f"driver-{len(list(self._folder.glob('driver-*')))}.log"
        driver = Driver(log, run_struck, self.file, strike, **options)
        driver.wait()
        return driver

    def written(self) -> Counter[str]:
        """How often each order stands in the sink."""
        if "kafka" not in self._sink:
            (table,) = self._sink
            files = _LIVE_FILES[table](self._folder / table)
            return Counter(row["order_id"] for row in rows_of(files))
        rows = self._kafka.clients.consume_all(f"{self.name}.priced")
        return Counter(json.loads(one.value or b"")["order_id"] for one in rows)

    def sent(self) -> Counter[str]:
        """Each order once."""
        return Counter(f"o{one}" for one in range(self._number))


_LIVE_FILES: dict[str, Callable[[Path], Iterable[Path]]] = {
    "delta": live_files,
    "iceberg": live_iceberg_files,
    "parquet": lambda folder: folder.rglob("*.parquet"),
}
EACH_SINK = pytest.mark.parametrize(
    ("sink", "strike"), [("kafka", "between writers"), ("delta", "behind the table")]
)
"""Each sink, and where a driver dies that has written a part of a micro-batch into it."""


@pytest.mark.long("drivers", why="drivers are killed and started anew")
@EACH_SINK
def test_other_options_hold_behind_what_was_written_in_part(
    kafka: SharedKafka, tmp_path: Path, sink: str, strike: Moment
) -> None:
    job = Job(kafka, tmp_path, sink)
    job.send()
    assert job.run(strike, grace="10s").exit_code == KILLED
    written = job.written()
    assert 0 < len(written) < ORDERS
    job.send()
    second = job.run(grace="0s")
    assert second.exit_code == 0, second.log
    assert "micro-batch 0 was written in part before `grace` changed" in second.log
    assert second.log.count(CLOSED) == (2 if sink == "kafka" else 0), "one a query"
    assert job.written() == job.sent()


@pytest.mark.long("drivers", why="drivers are killed and started anew")
def test_other_options_hold_at_once_where_nothing_was_written(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    job = Job(kafka, tmp_path, "delta")
    job.send()
    assert job.run("between writers", grace="10s").exit_code == KILLED
    second = job.run(grace="0s")
    assert second.exit_code == 0, second.log
    assert "written in part" not in second.log
    assert job.written() == job.sent()


@pytest.mark.long("drivers", why="drivers are killed and started anew")
def test_code_that_writes_other_rows_is_refused_before_it_writes(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    job = Job(kafka, tmp_path, "kafka")
    job.send()
    assert job.run("between writers", grace="0s").exit_code == KILLED
    written = job.written()
    changed = job.run(grace="0s", changed_code=True)
    assert "was written in part and comes out otherwise now" in changed.log
    assert job.written() == written
    again = job.run(grace="0s")
    assert again.exit_code == 0, again.log
    assert job.written() == job.sent()


def test_markers_of_other_options_and_rows_are_refused() -> None:
    found = Marker("mine", 4, 3, "abc", 2, "07")
    assert check_marker("query", found, Marker("mine", 4, 3, "abc"))
    assert check_marker("query", found, Marker("mine", 4, 3))
    assert not check_marker("query", found, Marker("mine", 5, 3, "def"))
    with pytest.raises(ReplayDiffers, match="micro-batch 4 with other options than it has now"):
        check_marker("query", found, Marker("mine", 4, 3, "def"))
    same = found._replace(keys=Digest(2, 7).keys)
    check_rows("query", 0, same, Digest(2, 7))
    check_rows("query", 0, Marker("mine", 4, 3), Digest(1, 1))
    with pytest.raises(ReplayDiffers, match="has written 2 rows, and they are 3 now"):
        check_rows("query", 0, same, Digest(3, 7))
    with pytest.raises(ReplayDiffers, match="has written 2 rows, and they are others"):
        check_rows("query", 0, same, Digest(2, 8))


JOB = """\
job: {name}
name: it
servers: here:1
checkpoint: folder
inputs: {{{inputs}}}
retention: 1h
sink: {{delta: {{folder: table}}}}
every: 5s
"""


def test_a_topic_that_was_made_anew_is_refused_once_it_was_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    def know(**ids: str) -> None:
        Stamp(spark, str(tmp_path)).know(ids)

    know(prices="1")
    know(prices="2", orders="1")
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").touch()
    know(prices="2")
    know(orders="1", more="1")
    with pytest.raises(StateOfOtherOptions, match="the topic `prices` was made anew since"):
        know(prices="3", orders="1")
    notes = [json.loads(one.read_text()) for one in sorted((tmp_path / "topics").glob("0*"))]
    assert [*notes[-1].items()] == [("more", "1"), ("orders", "1"), ("prices", "2")]


def test_a_history_that_goes_beyond_its_topic_is_of_another_one() -> None:
    refuse_another_topic("folder", {0: 10, 1: 5}, {0: 10, 1: 7, 2: 0})
    with pytest.raises(SinkOfAnotherQuery, match="partition 1 up to offset 4, and the topic ends"):
        refuse_another_topic("folder", {0: 10, 1: 5}, {0: 10, 1: 3})
    with pytest.raises(SinkOfAnotherQuery, match="the topic ends at 0: the topic was made anew"):
        refuse_another_topic("folder", {1: 5}, {0: 10})


@pytest.mark.parametrize("name", sorted(JOBS))
def test_options_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    model = JOBS[name].Config
    inputs = model.model_fields["inputs"].annotation.model_fields
    text = JOB.format(name=name, inputs=", ".join(f"{one}: {{topic: {one}}}" for one in inputs))
    if "retention_ms" not in model.model_fields:
        text = text.replace("retention: 1h\n", "")
    file = tmp_path / "job.yaml"
    file.write_text(text)
    job, config = load_job(file)
    noted = json.loads(json.dumps(options_of(config)))
    assert "every" not in noted
    assert "servers" not in noted
    assert with_options(job, config, noted, Begun("id", 3)) == config
    assert digest_of(noted) == digest_of(options_of(config))
    with pytest.raises(ReplayDiffers, match="that this version of the job does not take"):
        with_options(job, config, noted | {"gone": 1}, Begun("id", 3))


def test_a_micro_batch_of_an_earlier_version_writes_each_update(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    text = JOB.format(name="revenue-by-segment", inputs="orders: {topic: orders}")
    file.write_text(text)
    job, config = load_job(file)
    noted = options_of(config)
    assert noted.pop("updates") == "last"
    before = with_options(job, config, noted, Begun("id", 3))
    assert options_of(before) == noted | {"updates": "each"}


def test_a_job_with_other_options_logs_in_as_its_file_says_now(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("""
job: orders-prices
name: priced
servers: here:9092
checkpoint: state
inputs: {prices: {topic: prices}, orders: {topic: orders}}
retention: 1h
sink: {kafka: {topic: priced}}
kafka:
  {security-protocol: SASL_SSL, sasl-mechanism: PLAIN, sasl-username: ann, sasl-password: secret}
""")
    job, config = load_job(file)
    before = with_options(job, config, options_of(config) | {"retention": 1}, Begun("id", 3))
    assert writer_of(before) == writer_of(config)
    assert writer_of(before)["sasl.password"] == "secret"
