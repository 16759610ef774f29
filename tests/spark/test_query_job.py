"""README's job as its reader runs it: from topics that sidecars wrote to a topic, exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.progress import LAYOUT, CleanedBy, Progress, cleaned_by_row, progress_row
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic, progress_topic
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.pages import installed, write_files
from tests.runtime.sidecar import record
from tests.spark.driver import QUICK_JAVA

LINES_MAX = 10
NOTEBOOK = """\
import json, os
import headrace as hr
from headrace.spark import open_session

spark = open_session("notebook", master="local[2]", shuffle_partitions=1)
"""
SHOWN = """
frame = priced.dataframe(spark, servers=os.environ["HEADRACE_BOOTSTRAP_SERVERS"], tasks=2)
query = frame.writeStream.format("memory").queryName("rows").trigger(availableNow=True)
query.option("checkpointLocation", "frame").start().awaitTermination()
rows = spark.sql("SELECT key, unix_millis(time), order_id, total_cents FROM rows WHERE key = 'nut'")
print(json.dumps([list(row) for row in rows.collect()]))
past = priced.backfill(spark, servers=os.environ["HEADRACE_BOOTSTRAP_SERVERS"])
print(json.dumps(sorted([row["order_id"], row["total_cents"]] for row in past.collect())))
"""


class Shop:
    """Orders and prices, as sidecars would have cleaned them, and the job over them."""

    def __init__(self, clients: Clients, folder: Path) -> None:
        self.clients = clients
        self.folder = folder
        self.name = fresh_name("priced")
        write_files("README.md", folder)
        self.replace('"priced"', f'"{self.name}"')
        for topic in ("prices.cleaned", "orders.cleaned", "orders.priced"):
            self.replace(topic, f"{self.name}-{topic}")
        for side in ("prices", "orders"):
            self._make(side)

    def replace(self, old: str, new: str) -> None:
        """Write a piece of the job otherwise."""
        file = self.folder / "priced.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def line_of(self, text: str) -> int:
        """The number of the job's first line with this text."""
        lines = (self.folder / "priced.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)

    def topic(self, name: str) -> str:
        """The name of one of its topics."""
        return f"{self.name}-{name}"

    def _make(self, side: str) -> None:
        topic = self.topic(f"{side}.cleaned")
        for spec in (cleaned_topic(topic), progress_topic(topic)):
            self.clients.make_topic(spec.name, 1, spec.settings())
        by = CleanedBy(self.topic(side), LAYOUT, "source", {"operators": []})
        self._tell(topic, cleaned_by_row(by))

    def send(self, side: str, *records: Record) -> None:
        """Records, and that all is read up to the last of them."""
        topic = self.topic(f"{side}.cleaned")
        self.clients.produce(topic, list(records))
        last, at_ms = self.clients.consume_all(topic)[-1].offset, records[-1].timestamp_ms
        self._tell(topic, progress_row(Progress(0, at_ms, at_ms, "raw", 0, last)))

    def _tell(self, topic: str, row: tuple[bytes, bytes]) -> None:
        name = progress_topic(topic).name
        self.clients.produce(name, [Record(*row, 1, (), name, 0, None)])

    def run(self) -> subprocess.CompletedProcess[str]:
        """The job, over what is there."""
        command = ["headrace", "spark", "priced.py", "--once", "--log", "spark.log"]
        told = {"HEADRACE_BOOTSTRAP_SERVERS": self.clients.servers, "JDK_JAVA_OPTIONS": QUICK_JAVA}
        environment = {**installed(), **told}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def priced(self) -> list[tuple[bytes | None, int, Any]]:
        """Read the rows that it has written."""
        found = self.clients.consume_all(self.topic("orders.priced"))
        return [(one.key, one.timestamp_ms, json.loads(one.value or b"null")) for one in found]


@pytest.fixture
def shop(kafka: SharedKafka, tmp_path: Path) -> Shop:
    return Shop(kafka.clients, tmp_path)


def order(key: bytes, order_id: str, quantity: int, at_ms: int) -> Record:
    value = json.dumps({"order_id": order_id, "quantity": quantity}).encode()
    return record(key, value, at_ms)


def price(key: bytes, cents: int, at_ms: int) -> Record:
    return record(key, json.dumps({"price_cents": cents}).encode(), at_ms)


def row(order_id: str, total_cents: int | None, key: str = "nut") -> dict[str, object]:
    return {"key": key, "order_id": order_id, "total_cents": total_cents}


FIRST = [
    (b"nut", 500, row("o2", None)),
    (b"nut", 2_000, row("o1", 10)),
    (b"nut", 4_000, row("o3", 18)),
]


def send_first(shop: Shop) -> None:
    """Send the records of the first run."""
    assert len((shop.folder / "priced.py").read_text().splitlines()) <= LINES_MAX
    shop.send("prices", price(b"nut", 5, 1_000), price(b"nut", 9, 3_000), price(b"x", 1, 9_000))
    shop.send(
        "orders",
        order(b"nut", "o1", 2, 2_000),
        order(b"nut", "o2", 2, 500),
        record(b"nut", b"no order", 2_500),
        order(b"nut", "o3", 2, 4_000),
        # No progress says yet that all prices of its time are there.
        order(b"nut", "o4", 1, 20_000),
    )


def assert_first_is_priced(shop: Shop) -> None:
    """Check what the first run has written."""
    assert shop.priced() == FIRST
    (dead,) = shop.clients.consume_all(shop.topic("orders.cleaned.dead"))
    assert (dead.key, dead.value) == (b"nut", b"no order")


@pytest.mark.long("spark", why="it runs a job to its end before it runs it again")
def test_a_window_goes_on_where_the_job_ended(shop: Shop) -> None:
    shop.replace(
        "hr.run(priced",
        'priced = priced.group_by("key", hr.window("10s")).agg(hr.sum("total_cents"), hr.count())\n'
        "hr.run(priced",
    )
    shop.send("prices", price(b"nut", 5, 1_000), price(b"oat", 1, 1_000), price(b"x", 1, 9_000))
    shop.send("orders", order(b"nut", "o1", 2, 2_000), order(b"oat", "o2", 3, 8_000))
    done = shop.run()
    assert done.returncode == 0, done.stderr
    # Eight seconds have passed, and ten make a window.
    assert not shop.clients.topics() & {shop.topic("orders.priced")} or shop.priced() == []
    shop.send("prices", price(b"nut", 9, 9_500), price(b"x", 1, 30_000))
    shop.send(
        "orders",
        order(b"nut", "o3", 1, 9_900),
        order(b"oat", "o4", 7, 19_000),
        order(b"end", "o5", 1, 21_000),
    )
    for _ in range(2):
        again = shop.run()
        assert again.returncode == 0, again.stderr
    found = [
        (key, at_ms, row["sum_total_cents"], row["count"]) for key, at_ms, row in shop.priced()
    ]
    assert sorted(found) == [
        (b"nut", 9_999, 19, 2),
        (b"oat", 9_999, 3, 1),
        (b"oat", 19_999, 7, 1),
    ]


@pytest.mark.long("spark", why="it runs the job four times")
def test_a_job_that_cannot_work_says_why_and_goes_on_when_it_is_mended(shop: Shop) -> None:
    send_first(shop)
    first = shop.run()
    assert first.returncode == 0, first.stderr
    assert_first_is_priced(shop)
    # An expression without an answer is a sentence, and what it was to read waits.
    shop.replace('"quantity *', '"CAST(quantity / 0 AS BIGINT) *')
    shop.send("prices", price(b"x", 2, 30_000))
    shop.send("orders", order(b"nut", "end", 1, 30_000))
    failed = shop.run()
    assert failed.returncode == 2, failed.stderr
    assert "an expression of this job has no answer for a row: Division by zero." in failed.stderr
    assert "Traceback" not in failed.stderr
    assert shop.priced() == FIRST

    # So is a column that is none, with the line; nothing is read for it.
    shop.replace('"CAST(quantity / 0 AS BIGINT) *', '"pieces *')
    refused = shop.run()
    assert refused.returncode == 2, refused.stderr
    assert "names a column `pieces`" in refused.stderr
    assert "ERROR" not in refused.stderr
    assert f"priced.py:{shop.line_of('.select(')}: `select(key, order_id, " in refused.stderr

    shop.replace('"pieces *', '"quantity *')
    again = shop.run()
    assert again.returncode == 0, again.stderr
    assert shop.priced()[:4] == [*FIRST, (b"nut", 20_000, row("o4", 9))]


@pytest.mark.long("spark", why="it starts a session of its own")
def test_a_query_is_a_frame_in_a_session_of_ones_own(shop: Shop) -> None:
    shop.send("prices", price(b"nut", 5, 1_000), price(b"x", 1, 9_000))
    shop.send("orders", order(b"nut", "o1", 2, 2_000), order(b"x", "end", 1, 9_000))
    file = shop.folder / "priced.py"
    script = file.read_text().replace("import headrace as hr", NOTEBOOK)
    kept, _, _ = script.partition("hr.run(")
    file.write_text(kept + SHOWN)
    environment = {**installed(), "HEADRACE_BOOTSTRAP_SERVERS": shop.clients.servers}
    command = [sys.executable, str(file)]
    done = subprocess.run(
        command, cwd=shop.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    streamed, past = done.stdout.splitlines()[-2:]
    assert json.loads(streamed) == [["nut", 2_000, "o1", 10]]
    # All records count, whether or not progress has passed their time.
    assert json.loads(past) == [["end", 1], ["o1", 10]]
