"""`python -m tests.bench.whole`: from raw orders and raw prices to priced orders, whole.

headrace as shipped, Flink SQL and Kafka Streams read the same two topics of one broker, one after
the other, and what they make is compared with the right rows.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.contracts.errors import HeadraceError
from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.race import environments
from tests.bench.race.machine import load
from tests.bench.spark.topics import Size
from tests.bench.whole import headrace, peers, raw
from tests.bench.whole.measured import Track, Used, Whole, dumped, loaded, priced
from tests.bench.whole.report import TITLES, report

_BROKER_MIB = 512
_WAYS: dict[str, Callable[[Track], Used]] = {
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
    runs = _earlier(options)
    loads = [load()]
    with TemporaryDirectory(prefix="bench-whole-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB, java_options=())
        broker.start()
        try:
            for run in _runs(options, broker.bootstrap_servers, folder, _rounds_of(runs)):
                print(run, flush=True)
                runs.append(run)
        finally:
            broker.stop()
    loads.append(load())
    text = report(runs, shlex.join(["python", "-m", "tests.bench.whole", *sys.argv[1:]]), loads)
    print(text)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "whole.md").write_text(text, "utf-8")
        listed = [dumped(run) for run in runs]
        (options.results / "whole.json").write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
    if not all(run.agreement.is_whole for run in runs if run.who == "headrace"):
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
    return parser.parse_args()


def _earlier(options: argparse.Namespace) -> list[Whole]:
    if not options.more or options.results is None:
        return []
    return [*map(loaded, json.loads((options.results / "whole.json").read_text("utf-8")))]


def _rounds_of(runs: list[Whole]) -> int:
    return max((run.round + 1 for run in runs), default=0)


def _runs(options: argparse.Namespace, servers: str, folder: Path, first: int) -> Iterator[Whole]:
    for orders in options.orders:
        size = Size(orders, orders // 2)
        filled = raw.fill(servers, size)
        for number in range(first, first + options.rounds):
            # Every other round runs backwards, so that nobody always comes last.
            for who in options.only[:: -1 if number % 2 else 1]:
                name = f"{who}-{orders}-{number}"
                track = Track(filled, servers, name, folder / name)
                used = _WAYS[who](track)
                agreement = filled.wanted.compare(priced(servers, track.sink))
                yield Whole(who, *size, number, used, agreement)


if __name__ == "__main__":
    main()
