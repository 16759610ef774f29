"""The versioned join of Kafka Streams, as a contestant, with all that Java gives it.

It prices orders as the shipped job does, from JSON to JSON, with the sidecars' grace; or it puts
the bytes of both values side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.race import environments
from tests.bench.spark.cleaned import GRACE_MS, Filled, digest_of, priced
from tests.bench.spark.shipped import BATCHES, WARMING_BATCHES, Shipped
from tests.bench.spark.topics import PARTITIONS, RETENTION_MS, Size, read_rows
from tests.bench.spark.watched import Watched, watch
from tests.kafka.clients import FOREVER, Clients

_BYTES, _JSON = "versioned-join", "priced-cleaned-orders"


class Join(NamedTuple):
    """An operator of `Race.java`, and a guarantee."""

    operator: str
    guarantee: str


JOINS = {
    "json": Join(_JSON, "exactly_once_v2"),
    "at_least_once": Join(_BYTES, "at_least_once"),
    "exactly_once_v2": Join(_BYTES, "exactly_once_v2"),
}


def join(
    how: Join, name: str, topics: tuple[str, str], goal: int, servers: str, folder: Path
) -> Watched:
    """Join a stream's topic with a table's into the topic `name`, up to a sum of offsets."""
    clients = Clients(servers)
    clients.make_topic(name, PARTITIONS, FOREVER)
    source, table = topics
    told = {
        "OPERATOR": how.operator,
        "GUARANTEE": how.guarantee,
        "GROUP": f"{name}-group",
        "SOURCE": source,
        "TABLE": table,
        "SINK": name,
        "BOOTSTRAP_SERVERS": servers,
        "STATE_FOLDER": str(folder),
        "COMMIT_INTERVAL_MS": "1000",
        "RETENTION_MS": str(RETENTION_MS),
        "GRACE_MS": str(GRACE_MS),
        "THREADS": "2",
        "CACHE": "as it comes",
    }
    warm = goal * WARMING_BATCHES // BATCHES

    def done() -> int:
        return sum(clients.committed_offsets(told["GROUP"]).values())

    environment = {f"RACE_{each}": value for each, value in told.items()}
    return watch(
        environments.streams_command("G1"),
        environment,
        folder.with_suffix(".log"),
        lambda: done() >= goal,
        lambda: done() >= warm,
    )


def run(who: str, size: Size, filled: Filled, servers: str, folder: Path) -> Shipped:
    """Join the cleaned topics; the rows must be those of the shipped job."""
    folder.mkdir(parents=True)
    name = f"streams-{who}-{size.facts}".replace("_", "-")
    topics = filled.orders.topic, filled.prices.topic
    watched = join(JOINS[who], name, topics, filled.ends, servers, folder)
    made = digest_of(priced(servers, name) if who == "json" else _side_by_side(servers, name))
    if made != filled.wanted:
        message = f"Kafka Streams made {made}, and right is {filled.wanted}"
        raise SystemExit(message)
    return Shipped(
        who,
        *size,
        made.rows,
        watched.seconds,
        {
            name: cpu_s + watched.before.get(name, 0.0)
            for name, cpu_s in watched.cpu_seconds.items()
        },
        size.facts * (BATCHES - WARMING_BATCHES) // BATCHES,
        watched.warm_seconds,
        watched.warm_cpu_seconds,
        watched.memory_bytes_max,
    )


def _side_by_side(servers: str, topic: str) -> Iterator[tuple[bytes, str, int, int]]:
    for key, value, _ in read_rows(servers, topic):
        order, price = map(json.loads, value.split(b"|"))
        yield key, order["order_id"], order["quantity"], price["price_cents"]
