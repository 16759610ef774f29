"""Kafka Streams as a contestant, with all that Java gives it.

It does what a shipped job does, from JSON to JSON: it prices orders with the sidecars' grace, or
joins and aggregates tables. Or it puts the bytes of both values of a join side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.race import environments
from tests.bench.spark.cleaned import GRACE_MS, Ends, Filled, Made
from tests.bench.spark.jobs import count_alerts, orders_prices
from tests.bench.spark.shipped import (
    Shipped,
    refuse_wrong,
    topic_of,
)
from tests.bench.spark.topics import PARTITIONS, RETENTION_MS, read_rows
from tests.bench.spark.watched import Watched, watch
from tests.kafka.clients import FOREVER, Clients

_BYTES, _JSON = "versioned-join", "priced-cleaned-orders"
PEER, EACH_UPDATE = "streams", "each-update"
"""Kafka Streams as it comes, and without the cache that merges updates of an aggregate."""
_CHANGES = "-changelog"
"""How the internal topics end that nobody consumes."""


class How(NamedTuple):
    """An operator of `Race.java`, and how it runs."""

    operator: str
    guarantee: str = "exactly_once_v2"
    cache: str = "as it comes"


JOINS = {
    "json": How(_JSON),
    "at_least_once": How(_BYTES, "at_least_once"),
    "exactly_once_v2": How(_BYTES),
}


def of_job(job: str, who: str) -> How:
    """Return what does the same as a job; of `each update`, without the cache that merges them."""
    return How(job, cache="turned over" if who == EACH_UPDATE else "as it comes")


def join(
    how: How, name: str, topics: Sequence[str], ends: Ends, servers: str, folder: Path
) -> Watched:
    """Process topics, a table's last, into the topic `name`, up to their ends.

    Topics of its own on the way must be read to their ends as well.
    """
    clients = Clients(servers)
    clients.make_topic(name, PARTITIONS, FOREVER)
    told = {
        "OPERATOR": how.operator,
        "GUARANTEE": how.guarantee,
        "GROUP": f"{name}-group",
        "SOURCE": topics[0],
        "TABLE": topics[-1],
        "SINK": name,
        "BOOTSTRAP_SERVERS": servers,
        "STATE_FOLDER": str(folder),
        "COMMIT_INTERVAL_MS": "1000",
        "RETENTION_MS": str(RETENTION_MS),
        "GRACE_MS": str(GRACE_MS),
        "WINDOW_MS": str(count_alerts.WINDOW_MS),
        "THREADS": "2",
        "CACHE": how.cache,
    }
    goal = sum(ends.values())
    warm = goal // 2

    def done() -> int:
        return read_of(ends, clients.committed_offsets(told["GROUP"]))

    def is_done() -> bool:
        return done() >= goal and _has_read_its_own(clients, told["GROUP"])

    environment = {f"RACE_{each}": value for each, value in told.items()}
    return watch(
        environments.streams_command("G1"),
        environment,
        folder.with_suffix(".log"),
        is_done,
        lambda: done() >= warm,
    )


def read_of(ends: Ends, committed: Ends) -> int:
    """Return how many offsets before these ends are committed.

    An offset behind the marker of a transaction is above its end, and makes up for no other one.
    """
    return sum(min(committed.get(place, 0), end) for place, end in ends.items())


def _has_read_its_own(clients: Clients, group: str) -> bool:
    # Commits are read before ends, since a commit comes with all that was written for it.
    committed = clients.committed_offsets(group)
    own = {name for name in clients.topics() if name.startswith(f"{group}-")}
    ends = {
        (topic, partition): end
        for topic in own
        if not topic.endswith(_CHANGES)
        for partition, end in clients.end_offsets(topic).items()
    }
    return all(committed.get(place, 0) >= end for place, end in ends.items())


def run(who: str, filled: Filled, servers: str, folder: Path) -> Shipped:
    """Do as the job over the same topics; the rows must be right as well."""
    folder.mkdir(parents=True)
    how = JOINS[who] if filled.job == orders_prices.JOB else of_job(filled.job, who)
    name = f"streams-{topic_of(who, filled)}".replace("_", "-")
    topics = [each.topic for each in reversed(filled.inputs.values())]
    watched = join(how, name, topics, filled.ends, servers, folder)
    made = _made(how, name, filled, servers)
    refuse_wrong("Kafka Streams", made, filled)
    return Shipped(
        filled.job,
        who,
        *filled.size,
        made.rows,
        watched.seconds,
        {
            name: cpu_s + watched.before.get(name, 0.0)
            for name, cpu_s in watched.cpu_seconds.items()
        },
        filled.size.facts // 2,
        watched.warm_seconds,
        watched.warm_cpu_seconds,
        watched.memory_bytes_max,
        made.stayed,
        filled.round,
    )


def _made(how: How, topic: str, filled: Filled, servers: str) -> Made:
    if how.operator != _BYTES:
        judge = filled.judge_streams or filled.judge
        return judge(read_rows(servers, topic))
    priced = orders_prices.digest_of(_side_by_side(servers, topic))
    return Made(priced, priced.rows)


def _side_by_side(servers: str, topic: str) -> Iterator[tuple[bytes, str, int, int]]:
    for key, value, _ in read_rows(servers, topic):
        order, price = map(json.loads, value.split(b"|"))
        yield key, order["order_id"], order["quantity"], price["price_cents"]
