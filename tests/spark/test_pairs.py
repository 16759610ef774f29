"""Two streams of a real broker meet by columns, with a grace, as a user would run the job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.pages import installed
from tests.runtime.sidecar import record

QUERY = """\
import headrace as hr

orders = hr.stream("@-orders", "order_id STRING, customer STRING", pipeline=None)
payments = hr.stream("@-payments", "payer STRING, cents BIGINT", pipeline=None)
paid = orders.join_within(
    payments, within="10s", on=("customer", "payer"), how="outer", grace="20s"
).select("key", "order_id", "cents")
"""
RUN = 'hr.run(paid, name="@", to=hr.kafka("@-paid", partitions=1))\n'
BACKFILL = """
import json, os
from headrace.spark import open_session

spark = open_session("notebook", master="local[2]", shuffle_partitions=1)
rows = paid.backfill(spark, servers=os.environ["HEADRACE_BOOTSTRAP_SERVERS"])
print(json.dumps(sorted([row["key"], row["order_id"], row["cents"]] for row in rows.collect())))
"""
WHOLE = [["k1", "o1", 5], ["k2", "o2", None], ["k3", "o3", 6], ["p3", None, 7]]


@pytest.mark.long("spark", why="two jobs and a session of their own; the join is tested without")
def test_orders_and_payments_out_of_order_meet_by_customer(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    name = fresh_name("paid")
    clients = kafka.clients

    def send(topic: str, *rows: tuple[str, int, dict[str, object]]) -> None:
        clients.produce(
            f"{name}-{topic}",
            [record(key.encode(), json.dumps(value).encode(), ms) for key, ms, value in rows],
        )

    def run(file: str, text: str, *command: str) -> str:
        (tmp_path / file).write_text(text.replace("@", name))
        environment = {**installed(), "HEADRACE_BOOTSTRAP_SERVERS": clients.servers}
        done = subprocess.run(
            [*command, file],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for topic in ("orders", "payments"):
        clients.make_topic(f"{name}-{topic}", 1, {"retention.ms": "-1"})
    send("orders", ("k1", 30_000, {"order_id": "o1", "customer": "ann"}))
    send("orders", ("k2", 31_000, {"order_id": "o2", "customer": None}))
    send("payments", ("p1", 32_000, {"payer": "ann", "cents": 5}))
    job = "headrace", "spark", "--once", "--log", "spark.log"
    run("paid.py", QUERY + RUN, *job)
    # Fifteen seconds behind the highest time is within the grace.
    send("orders", ("k3", 17_000, {"order_id": "o3", "customer": "bob"}))
    send("payments", ("p2", 18_000, {"payer": "bob", "cents": 6}))
    send("payments", ("p3", 33_000, {"payer": "eve", "cents": 7}))
    send("orders", ("end", 200_000, {"order_id": "end", "customer": "end"}))
    send("payments", ("end", 200_000, {"payer": "end", "cents": 0}))
    run("paid.py", QUERY + RUN, *job)
    found = [
        ((one.key or b"").decode(), *list(json.loads(one.value or b"").values())[1:])
        for one in clients.consume_all(f"{name}-paid")
    ]
    assert sorted(map(list, found), key=str) == WHOLE
    last = run("notebook.py", QUERY + BACKFILL, sys.executable).splitlines()[-1]
    assert json.loads(last) == [["end", "end", 0], *WHOLE]
