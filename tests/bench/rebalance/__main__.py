"""`python -m tests.bench.rebalance`: a third worker joins, and one is killed; who stands still?

Headrace under both guarantees and stock Faust, one after the other on one broker: 12 partitions, a
state of 200,000 keys, 240 records a second. A gap is the longest time in which no record of a
partition could be read from the cleaned topic; `quiet` is what that is when nothing happens.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from aiokafka.errors import KafkaError

from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.rebalance.contestants import (
    Contest,
    Worker,
    faust,
    headrace,
    partitions_of,
    said_at,
)
from tests.bench.rebalance.traffic import PARTITIONS, Traffic, fill, now_s
from tests.kafka.clients import Clients, fresh_name

_BROKER_MIB = 512
_QUIET_S = 12.0
_SETTLED_S = 5.0
_STOCK_JOIN_S = 35.0
_WITHIN_S = 600.0
Start = Callable[[Contest, str], Worker]
CONTESTANTS: dict[str, tuple[Start, str]] = {
    "headrace, exactly once": (headrace, "exactly-once"),
    "headrace, at least once": (headrace, "at-least-once"),
    "stock Faust, at least once": (faust, "at-least-once"),
}


class Figures(NamedTuple):
    """The results of one contestant; times in seconds."""

    name: str
    quiet_s: float
    """The longest gap of any partition while nothing happened."""
    join_moved_s: float
    join_stayed_s: float
    moved: int
    kill_moved_s: float | None
    """None where nobody was killed."""
    kill_stayed_s: float | None
    heard_s: float | None
    """From the kill until the group had shared out what was orphaned."""
    takeover_s: float | None
    """From then until all of it ran."""
    lost: int
    doubled: int


def main() -> None:
    """Measure as the command line says, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--only", choices=CONTESTANTS, action="append")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="rebalance-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB)
        broker.start()
        try:
            found = []
            for name in options.only or CONTESTANTS:
                found.append(_measure(name, broker.bootstrap_servers, folder, options.keys))
                print(found[-1], flush=True)
        finally:
            broker.stop()
    report = "\n".join(_report(found, options.keys))
    print(report)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "rebalance.md").write_text(report + "\n", "utf-8")


def _measure(name: str, servers: str, folder: Path, keys: int) -> Figures:
    start, guarantee = CONTESTANTS[name]
    contest = Contest(fresh_name("rebalance"), servers, folder, guarantee)
    contest.folder = folder / contest.name
    contest.folder.mkdir()
    clients = Clients(servers)
    clients.make_topic(contest.source, PARTITIONS)
    if start is faust:
        clients.make_topic(contest.sink, PARTITIONS)
    with ExitStack() as stack:

        def started(worker: str) -> Worker:
            begun = start(contest, worker)
            stack.callback(begun.stop)
            return begun

        fill(servers, contest.source, keys)
        first = [started("worker-1"), started("worker-2")]
        _wait_until_read(clients, contest, keys)
        traffic = Traffic(servers, contest.source, contest.sink)
        with traffic.flowing():
            _wait(lambda: len(traffic.arrivals) == PARTITIONS, "records of every partition")
            time.sleep(_SETTLED_S)
            quiet_from_s = now_s()
            time.sleep(_QUIET_S)
            joined_s = now_s()
            third = started("worker-3")
            _wait_until_joined(third, contest, start)
            moved = partitions_of(third, contest.source)
            joined_by_s = now_s()
            killed = None if start is faust else _kill(first, third, contest)
            ended_s = now_s()
        stayed = set(range(PARTITIONS)) - moved
        longest = traffic.longest_gap_s
        orphans: set[int] = set() if killed is None else killed.orphans
        others = set(range(PARTITIONS)) - orphans
        return Figures(
            name,
            max(longest(each, quiet_from_s, joined_s) for each in range(PARTITIONS)),
            _longest(longest(each, joined_s, joined_by_s) for each in moved),
            _longest(longest(each, joined_s, joined_by_s) for each in stayed),
            len(moved),
            None
            if killed is None
            else _longest(longest(each, killed.at_s, ended_s) for each in orphans),
            None
            if killed is None
            else _longest(longest(each, killed.at_s, ended_s) for each in others),
            None if killed is None else killed.heard_s,
            None if killed is None else killed.takeover_s,
            traffic.lost,
            traffic.doubled,
        )


class Killed(NamedTuple):
    """A worker that was killed, and what became of its partitions."""

    at_s: float
    orphans: set[int]
    heard_s: float
    takeover_s: float


def _kill(first: list[Worker], third: Worker, contest: Contest) -> Killed:
    """Kill the second; its standbys take over."""
    time.sleep(_SETTLED_S)
    victim, left = first[1], [first[0], third]
    victim_has = partitions_of(victim, contest.source)
    at_s = now_s()
    victim.process.kill()

    def ran_at() -> list[float]:
        return [at for worker in left for at in said_at(worker, "] running ", at_s)]

    _wait(lambda: len(ran_at()) >= len(victim_has), "takeover")
    heard_at_s = min(at for worker in left for at in said_at(worker, "joining the group", at_s))
    ran_at_s = sorted(ran_at())[len(victim_has) - 1]
    time.sleep(_SETTLED_S)
    return Killed(at_s, victim_has, heard_at_s - at_s, ran_at_s - heard_at_s)


def _wait_until_read(clients: Clients, contest: Contest, keys: int) -> None:
    def is_read() -> bool:
        try:
            committed = clients.committed_offsets(contest.name)
        except KafkaError:
            # A broker that was never asked for a group's coordinator has none yet.
            return False
        return sum(committed.values()) >= keys

    _wait(is_read, "the state of all keys")


def _wait_until_joined(third: Worker, contest: Contest, start: Start) -> None:
    if start is faust:
        time.sleep(_STOCK_JOIN_S)
        return
    share = PARTITIONS // 3
    _wait(lambda: len(partitions_of(third, contest.source)) == share, "the third's share")
    time.sleep(_SETTLED_S)


def _wait(holds: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > give_up_at:
            message = f"no {what} within {_WITHIN_S} s"
            raise AssertionError(message)
        time.sleep(0.1)


def _longest(gaps: Iterable[float]) -> float:
    return max(gaps, default=0.0)


def _report(found: Iterable[Figures], keys: int) -> Iterator[str]:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    yield (
        f"{PARTITIONS} partitions, {keys:,} keys, 240 records a second; one standby a partition for"
        f" headrace, killed by SIGKILL; load average behind it {load}. Gaps in seconds."
    )
    yield ""
    yield (
        "| who | quiet | join: moved | join: stayed | partitions moved | kill: orphans"
        " | kill: others | kill to heard | heard to running | lost | doubled |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for one in found:
        cells = (
            one.name, _s(one.quiet_s), _s(one.join_moved_s), _s(one.join_stayed_s), str(one.moved),
            _s(one.kill_moved_s), _s(one.kill_stayed_s), _s(one.heard_s), _s(one.takeover_s),
            str(one.lost), str(one.doubled),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _s(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


if __name__ == "__main__":
    main()
