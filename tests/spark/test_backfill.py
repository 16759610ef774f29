"""The past of a stream is joined at once, and the job goes on from there: each order once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest
import yaml

from headrace.contracts.dead_letter import OFFSET_HEADER, PARTITION_HEADER
from headrace.contracts.record import Record
from headrace.contracts.topics import dead_topic_name
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record
from tests.spark.commands import ended, run_commands
from tests.spark.driver import Driver
from tests.spark.tables import live_files, live_iceberg_files, rows_of

PARTITIONS, PRODUCTS = 2, 6
BEGIN_MS = 1_600_000_000_000
STEP_MS, ORDERS = 1_000, 120
FROM_MS = BEGIN_MS + 20 * STEP_MS
FROM, TO = "2020-09-13T12:27:00Z", "2020-09-13T14:28+02:00"
QUERY = """\
SELECT o.key AS product, o.order_id, o.quantity, p.price_cents
FROM orders o LEFT JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.key = p.key
"""
LATE = "late"
"""An order of the past that came behind the end of the period."""


class Row(NamedTuple):
    """A row of the table, as far as the join decides it."""

    product: str
    order_id: str
    price_cents: int | None
    at_ms: int


def order(name: str, number: int, at_ms: int) -> Record:
    """An order of one of the products."""
    value = json.dumps({"order_id": name, "quantity": 2}).encode()
    return record(b"p%d" % (number % PRODUCTS), value, at_ms, (), number % PARTITIONS)


def orders() -> list[Record]:
    """An order a step, unreadable ones in the past and behind it, and a late one at the end."""
    unreadable = [(None, b"{}"), (b"p0", b"no JSON"), (b"p0", b"[1]")]
    sent = [order(f"o{n}", n, BEGIN_MS + n * STEP_MS) for n in range(ORDERS)]
    for at, (key, value) in zip((30, 40, 100), unreadable, strict=True):
        sent.insert(at, record(key, value, BEGIN_MS + at * STEP_MS, (), 0))
    return [*sent, order(LATE, 1, BEGIN_MS + 50 * STEP_MS)]


def prices() -> list[Record]:
    """Prices that change every ten steps, and a product without one for a while.

    The last one came late, and the first one is older than the period.
    """
    sent = [
        record(b"p%d" % n, b'{"price_cents": %d}' % (at + n), BEGIN_MS + at * STEP_MS, (), n % 2)
        for at in range(0, ORDERS, 10)
        for n in range(PRODUCTS)
        if n or not at
    ]
    sent.insert(20, record(b"p2", None, BEGIN_MS + 35 * STEP_MS))
    sent.insert(30, record(b"p3", b"no JSON", BEGIN_MS + 55 * STEP_MS, (), 1))
    late = record(b"p4", b'{"price_cents": 7}', BEGIN_MS + 63 * STEP_MS)
    return [*sent, late]


class World:
    """The topics, and two jobs that read them into tables of one kind."""

    def __init__(self, kafka: SharedKafka, folder: Path, kind: str, described: str) -> None:
        """Send all records; `ahead` gets a backfill, and `plain` reads everything as a stream."""
        self._clients, self._folder, self._kind = kafka.clients, folder, kind
        self.name = fresh_name("past")
        for topic, sent in (("orders", orders()), ("prices", prices())):
            name = self.topic(topic)
            kafka.clients.make_topic(name, PARTITIONS, {"retention.ms": "-1"})
            kafka.clients.produce(name, sent)
        for job in ("ahead", "plain"):
            self.describe(job, described)

    def topic(self, side: str) -> str:
        """Its name."""
        return f"{self.name}.{side}"

    def describe(self, job: str, described: str) -> None:
        """Write the file of a job."""
        inputs = {one: {"topic": self.topic(one)} for one in ("prices", "orders")}
        of_job = {"job": "orders-prices", "inputs": inputs, "retention": "1h", "join": "left"}
        of_query = {
            "query": QUERY,
            "streams": {
                "orders": {**inputs["orders"], "schema": "order_id STRING, quantity BIGINT"}
            },
            "tables": {
                "prices": {**inputs["prices"], "schema": "price_cents BIGINT", "retention": "1h"}
            },
        }
        said = {
            **(of_job if described == "job" else of_query),
            "name": f"{self.name}.{job}",
            "servers": self._clients.servers,
            "checkpoint": f"checkpoint-{job}",
            "shuffle-partitions": 2,
            "sink": {self._kind: {"folder": str(self._folder / job)}},
            "spark": {"spark.ui.enabled": "false"},
        }
        (self._folder / f"{job}.yaml").write_text(yaml.safe_dump(said))

    def rows(self, job: str) -> Counter[Row]:
        """The rows of a job's table, and how often each stands there."""
        table = self._folder / job
        files: dict[str, Iterable[Path]] = {"parquet": sorted(table.rglob("*.parquet"))}
        if self._kind != "parquet":
            files = {self._kind: _LIVE[self._kind](table)}
        return Counter(
            Row(
                one["product"],
                one["order_id"],
                one["price_cents"],
                round(one["timestamp"].timestamp() * 1_000),
            )
            for one in rows_of(files[self._kind])
        )

    def expected(self) -> Counter[Row]:
        """The rows that both ways must have made, by the job that read everything as a stream."""
        found = Counter(
            {
                row: times
                for row, times in self.rows("plain").items()
                if row.at_ms >= FROM_MS or row.order_id == LATE
            }
        )
        assert set(found.values()) == {1}
        return found

    def dead(self, side: str) -> Counter[tuple[bytes, ...]]:
        """How often each record is a dead letter, by its partition and offset."""
        found = self._clients.consume_all(dead_topic_name(self.topic(side)))
        names = (PARTITION_HEADER, OFFSET_HEADER)
        return Counter(
            tuple(value or b"" for name, value in one.headers if name in names) for one in found
        )


_LIVE = {"delta": live_files, "iceberg": live_iceberg_files}


def run_backfills(folder: Path) -> None:
    """Begin a backfill, finish it, and run both jobs; a driver does this in one process."""
    far, period = ["--to", "2020-09-13T12:29Z"], ["--from", FROM, "--to", TO]
    ahead = ["spark", "backfill", "ahead.yaml"]
    run_commands(folder, [[*ahead, *far], [*ahead, *period]], {})
    copytree(folder / "ahead", folder / "past")
    # A driver that dies behind its last row leaves it so.
    (folder / "checkpoint-ahead" / "backfill" / "whole").unlink()
    once = [["spark", f"{job}.yaml", "--once"] for job in ("ahead", "plain")]
    run_commands(folder, [once[0], [*ahead, "--from", TO], ahead, *once, ahead], {})


@pytest.mark.parametrize(
    ("kind", "described"),
    [
        ("parquet", "job"),
        *(
            pytest.param(*each, marks=pytest.mark.long("drivers", why="it is told above"))
            for each in (("delta", "query"), ("iceberg", "job"), ("parquet", "query"))
        ),
    ],
)
def test_a_job_goes_on_behind_the_past_that_was_joined_at_once(
    kafka: SharedKafka, tmp_path: Path, kind: str, described: str
) -> None:
    world = World(kafka, tmp_path, kind, described)
    driver = Driver(tmp_path / "driver.log", run_backfills, tmp_path)
    assert driver.wait() == 0, driver.log
    too_far, first, early, other, again, rest, plain, done = ended(driver.log)
    assert too_far.exit_code == 2
    assert too_far.said[-1].startswith("the past that both topics have passed ends before ")
    last = f"2020-09-13T12:28:30.000+00:00; the last to pass is `{world.name}.prices`"
    assert last in too_far.said[-1]
    assert [each.exit_code for each in (first, again, rest, plain)] == [0] * 4, driver.log
    assert [each.exit_code for each in (early, other, done)] == [4] * 3, driver.log
    assert "a backfill into `checkpoint-ahead` was begun and not finished" in early.said[-1]
    assert f"was begun with {FROM[:-1]}.000+00:00 as its `--from`" in other.said[-1]
    assert "the backfill into `checkpoint-ahead` is done; start the job" in done.said[-1]
    past = world.rows("past")
    assert {row.order_id for row in past} == {f"o{n}" for n in range(20, 80)}
    expected = world.expected()
    assert {None, 7} < {row.price_cents for row in expected}
    assert world.rows("ahead") == expected
    assert past < expected
    assert LATE in {row.order_id for row in expected - past}
    # Both jobs have read each unreadable record, and a repeated backfill writes none again.
    assert set(world.dead("prices").values()) == {2}
    assert sorted(world.dead("orders").values()) == [2, 2, 2]
