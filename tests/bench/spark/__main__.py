"""`python -m tests.bench.spark`: the shipped jobs, and a join, beside Spark and Kafka Streams.

The shipped join is measured as users run it, and as a query with values in JSON and in Avro. With
`--jobs` come the other shipped jobs, and with
`--peers` the join alone and other ways to write it. All read the same topics of one broker, one
after the other, and what they make is compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.dataset as ds

from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.race import environments
from tests.bench.race.machine import load
from tests.bench.spark import queries, shipped, streams, trickle
from tests.bench.spark.cleaned import Filled
from tests.bench.spark.jobs import (
    count_alerts,
    customers_subscriptions,
    orders_customers,
    orders_prices,
    revenue_by_segment,
)
from tests.bench.spark.queries import QUERIES
from tests.bench.spark.report import TITLES, Run, report, spark_chart
from tests.bench.spark.shipped import SINKS, Shipped, topic_of
from tests.bench.spark.topics import (
    Digest,
    Size,
    digest,
    fill,
    read_rows,
)
from tests.bench.spark.watched import Watched, watch
from tests.kafka.clients import Clients
from tests.runtime.registry_server import registry_server

_SIZES = (Size(1_000_000, 500_000), Size(4_000_000, 2_000_000))
_SMALL = Size(100_000, 50_000)
"""For who keeps a row of state a record."""
_MIB = 1 << 20
_BROKER_MIB = 512
STREAMS = ("at_least_once", "exactly_once_v2")
_ALIKE = ("json", "exactly_once_v2")
"""Kafka Streams beside the shipped job, all exactly once."""
_OTHERS = (orders_customers, revenue_by_segment, customers_subscriptions, count_alerts)
_FILLS: dict[str, Callable[[str, int], Filled]] = {each.JOB: each.fill for each in _OTHERS}
"""The shipped jobs beside `orders-prices`."""
_ELSE = frozenset({"stream-stream", "duplicates"})
"""Contestants that make other rows, since Spark has no such operator; small sizes only."""


def main() -> None:
    """Measure as the command line says, and write what came of it."""
    options = _options()
    if options.jobs or any(who in streams.JOINS for who in (*options.peers, *options.shipped)):
        environments.build_streams()
    loads = [load()]
    with TemporaryDirectory(prefix="bench-spark-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB, java_options=())
        broker.start()
        try:
            servers = broker.bootstrap_servers
            jobs = list(_jobs(options, servers, folder))
            does_trickle = not {*SINKS}.isdisjoint(options.shipped)
            delay = trickle.run(servers, folder / "trickle") if does_trickle else None
            runs = list(_runs(options, servers, folder))
        finally:
            broker.stop()
    loads.append(load())
    text = report(jobs, delay, runs, loads)
    print(text)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "spark.md").write_text(text, "utf-8")
        listed = [*(job._asdict() for job in jobs), *(run._asdict() for run in runs)]
        (options.results / "spark.json").write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
        if options.shipped:
            (options.results / "spark.svg").write_text(spark_chart(jobs), "utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument(
        "--shipped",
        nargs="*",
        choices=(*SINKS, *QUERIES, *streams.JOINS),
        default=(*SINKS, *QUERIES, *_ALIKE),
        help=f"who runs {orders_prices.JOB}",
    )
    parser.add_argument(
        "--jobs",
        nargs="*",
        metavar="JOB",
        help="the other shipped jobs as well, all or some of " + ", ".join(_FILLS),
    )
    parser.add_argument(
        "--orders",
        nargs="+",
        type=int,
        default=[2_000_000],
        help="records of a job's largest topic; the other jobs run over the first of these sizes",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each of them runs")
    parser.add_argument(
        "--peers",
        nargs="*",
        metavar="WHO",
        help="the join alone as well, by all or by some of " + ", ".join(TITLES),
    )
    parser.add_argument("--facts", nargs="+", type=int, help="its sizes; versions are half as many")
    parser.add_argument("--results", type=Path, help="a folder for table, figures and chart")
    options = parser.parse_args()
    for name, known in (("peers", TITLES), ("jobs", _FILLS)):
        given = getattr(options, name)
        setattr(options, name, [] if given is None else given or [*known])
        if unknown := {*getattr(options, name)} - {*known}:
            parser.error(f"--{name}: {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return options


def _jobs(options: argparse.Namespace, servers: str, folder: Path) -> Iterator[Shipped]:
    """Run shipped jobs, and Kafka Streams over the same topics."""
    in_json = [who for who in options.shipped if who != queries.AVRO]
    rounds = range(options.rounds)
    for orders in options.orders if in_json else ():
        filled = orders_prices.fill(servers, orders)
        yield from _contest(in_json, filled, rounds, servers, folder)
    first = options.orders[0]
    if queries.AVRO in options.shipped:
        with registry_server() as registry:
            filled = queries.fill(servers, first, registry)
            yield from _contest([queries.AVRO], filled, rounds, servers, folder)
    for job in options.jobs:
        contestants = ["kafka", streams.PEER]
        if job == revenue_by_segment.JOB:
            contestants += [shipped.EACH, streams.EACH_UPDATE]
        yield from _contest(contestants, _FILLS[job](servers, first), rounds, servers, folder)


def _contest(
    contestants: Sequence[str], filled: Filled, rounds: range, servers: str, folder: Path
) -> Iterator[Shipped]:
    """Run all of them in each round, so that neighbours have the same machine."""
    ours = {**dict.fromkeys((*SINKS, shipped.EACH), shipped.run)}
    ours |= dict.fromkeys(QUERIES, queries.run)
    for number, who in product(rounds, contestants):
        contestant, again = ours.get(who, streams.run), filled._replace(round=number)
        one = contestant(who, again, servers, folder / topic_of(who, again))
        print(one, flush=True)
        yield one


def _runs(options: argparse.Namespace, servers: str, folder: Path) -> Iterator[Run]:
    if not options.peers:
        return
    sizes = [Size(facts, facts // 2) for facts in options.facts or ()] or _SIZES
    for size in sizes:
        fill(servers, size)
        first: Digest | None = None
        for who in options.peers:
            if who in _ELSE:
                continue
            run, made = _run(who, size, servers, folder / f"{who}-{size.facts}")
            if first is not None and made != first:
                message = f"{who} made {made}, and the first of them {first}"
                raise SystemExit(message)
            first = made
            yield run
    others = [who for who in options.peers if who in _ELSE]
    if others:
        fill(servers, _SMALL)
    for who in others:
        yield _run(who, _SMALL, servers, folder / who)[0]


def _run(who: str, size: Size, servers: str, folder: Path) -> tuple[Run, Digest]:
    folder.mkdir()
    if who in STREAMS:
        watched, made = _streams(who, size, servers, folder)
    else:
        arguments = [who, str(size.facts), str(size.versions), servers, str(folder)]
        command = [sys.executable, "-m", "tests.bench.spark.query", *arguments]
        watched = watch(command, {}, folder.with_suffix(".log"))
        topic = f"join-{size.facts}"
        made = digest(read_rows(servers, topic) if who == "headrace-kafka" else _files(folder))
    cpu = watched.cpu_seconds
    run = Run(
        who,
        *size,
        made.rows,
        round(watched.seconds, 1),
        round(sum(cpu.values()), 1),
        round(cpu.get("java", 0.0), 1),
        round(watched.start_up_cpu_seconds, 1),
        round(sum(watched.memory_bytes_max.values()) / _MIB),
    )
    print(f"{TITLES[who]}: {run.facts_per_cpu_second:,.0f} facts a CPU-second, {run}", flush=True)
    return run, made


def _streams(guarantee: str, size: Size, servers: str, folder: Path) -> tuple[Watched, Digest]:
    name = f"{guarantee}-{size.facts}".replace("_", "-")
    topics = size.facts_topic, size.versions_topic
    clients = Clients(servers)
    ends = {
        (topic, partition): end
        for topic in topics
        for partition, end in clients.end_offsets(topic).items()
    }
    watched = streams.join(streams.JOINS[guarantee], name, topics, ends, servers, folder)
    return watched, digest(read_rows(servers, name))


def _files(folder: Path) -> Iterator[tuple[bytes, bytes, int]]:
    names = ["key", "value", "table_value", "timestamp_ms"]
    for batch in ds.dataset(folder / "out").to_batches(columns=names):
        columns = [batch.column(name).to_pylist() for name in names]
        for key, value, table_value, time_ms in zip(*columns, strict=True):
            yield key, value + b"|" + (table_value or b""), time_ms


if __name__ == "__main__":
    main()
