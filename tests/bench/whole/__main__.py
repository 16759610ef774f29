"""`python -m tests.bench.whole`: from raw orders and raw prices to priced orders, whole.

headrace as shipped, Flink SQL and Kafka Streams read the same two topics of one broker, one after
the other, and what they make is compared with the right rows.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from headrace.contracts.errors import HeadraceError
from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.race import environments
from tests.bench.race.machine import load
from tests.bench.spark.topics import Size
from tests.bench.steady import ORDERS_A_SECOND
from tests.bench.whole import delay, headrace, kept, peers, raw
from tests.bench.whole.delay import Delayed, Load
from tests.bench.whole.drawn import whole_chart
from tests.bench.whole.kept import Kept, Part, Told
from tests.bench.whole.measured import Track, Used, Whole, priced
from tests.bench.whole.raw import Raw
from tests.bench.whole.report import TITLES, report, told

_One = TypeVar("_One", bound=Whole | Delayed)
_BROKER_MIB = 512
_WAYS: dict[str, Callable[[Track, Raw], Used]] = {
    "headrace": headrace.run,
    "flink": peers.flink,
    "streams": peers.streams,
}
_BUILD: dict[str, Callable[[], None]] = {
    "flink": environments.build_flink,
    "streams": environments.build_streams,
}


def main() -> None:
    """Measure as the command line says, and write what came of it."""
    options = _options()
    _build(options.only)
    found = kept.read(options.results) if options.results else Kept()
    with TemporaryDirectory(prefix="bench-whole-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB, java_options=())
        broker.start()
        try:
            found = _measured(found, options, broker.bootstrap_servers, folder)
        finally:
            broker.stop()
    text = report(found)
    print(text)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "whole.md").write_text(text, "utf-8")
        kept.write(options.results, found)
        if found.rounds:
            (options.results / "whole.svg").write_text(whole_chart(found.rounds.runs), "utf-8")
    part = found.delay if options.delay else found.rounds
    if part and not all(run.agreement.is_whole for run in part.runs if run.who == "headrace"):
        sys.exit("headrace did not make the right rows")


def _build(contestants: list[str]) -> None:
    """Fetch and compile what contestants need, or say in a sentence what is missing."""
    try:
        for who in contestants:
            _BUILD.get(who, lambda: None)()
    except HeadraceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except subprocess.CalledProcessError as error:
        program = Path(error.cmd[0]).name
        sys.exit(f"{program} could not prepare {who}, see above; --only leaves contestants out")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.whole", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--orders", nargs="+", type=int, default=[1_000_000], help="sizes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="a folder for the page and its figures")
    parser.add_argument("--more", action="store_true", help="add to the rounds in that folder")
    parser.add_argument("--delay", action="store_true", help="measure the delay instead")
    parser.add_argument(
        "--orders-a-second", type=int, default=ORDERS_A_SECOND, help="for the delay"
    )
    parser.add_argument("--warming-seconds", type=float, default=60.0, help="before the delay")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the delay")
    return parser.parse_args()


def _measured(found: Kept, options: argparse.Namespace, servers: str, folder: Path) -> Kept:
    """Measure one part of the page anew, or add to it; the other one stays."""
    if options.delay:
        delays = partial(_delays, options, servers, folder)
        return found._replace(delay=_part(found.delay, delays, adds=options.more))
    rounds = partial(_runs, options, servers, folder)
    return found._replace(rounds=_part(found.rounds, rounds, adds=options.more))


def _part(
    before: Part[_One] | None, measure: Callable[[int], Iterator[_One]], *, adds: bool
) -> Part[_One]:
    runs = [*before.runs] if before and adds else []
    load_before = load()
    for run in measure(max((run.round + 1 for run in runs), default=0)):
        print(run, flush=True)
        runs.append(run)
    return Part(_told(load_before), runs)


def _told(before: str) -> Told:
    return told(shlex.join(["python", "-m", "tests.bench.whole", *sys.argv[1:]]), [before, load()])


def _turns(options: argparse.Namespace, first: int) -> Iterator[tuple[int, str]]:
    """Yield who comes in which round; every other runs backwards, so nobody always comes last."""
    for number in range(first, first + options.rounds):
        for who in options.only[:: -1 if number % 2 else 1]:
            yield number, who


def _runs(options: argparse.Namespace, servers: str, folder: Path, first: int) -> Iterator[Whole]:
    for orders in options.orders:
        size = Size(orders, orders // 2)
        filled = raw.fill(servers, size)
        for number, who in _turns(options, first):
            name = f"{who}-{orders}-{number}"
            track = Track(filled.topics, raw.GRACE_MS, servers, name, folder / name)
            used = _WAYS[who](track, filled)
            agreement = filled.wanted.compare(priced(servers, track.sink))
            yield Whole(who, *size, number, used, agreement)


def _delays(
    options: argparse.Namespace, servers: str, folder: Path, first: int
) -> Iterator[Delayed]:
    steady = Load(options.orders_a_second, options.warming_seconds, options.seconds)
    for number, who in _turns(options, first):
        name = f"{who}-delay-{number}"
        topics = raw.make_topics(servers, name)
        track = Track(topics, delay.GRACE_MS, servers, name, folder / name)
        yield delay.measure(who, number, track, steady)


if __name__ == "__main__":
    main()
