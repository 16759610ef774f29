"""Runs the kill test (`make kill-test KILLS=n`)."""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.kill.chaos import plan
from tests.kill.pipelines import CASES
from tests.kill.report import Options, failure_lines, report_lines
from tests.kill.run import run


def main() -> int:
    """Run what the arguments say; 1 if something is wrong."""
    arguments = _arguments()
    # Clients of a broker that is being killed have much to say, and nothing that is news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
    names = list(CASES) if arguments.pipeline is None else [arguments.pipeline]
    kills = -(-arguments.kills // len(names))
    failures = 0
    for name in names:
        strikes = plan(
            seed,
            kills,
            # A broker that starts again begins a new segment, and deletes what `kept` reads.
            broker_too=arguments.broker and len(CASES[name].spec.hops()) == 1,
            exactly_once=arguments.guarantee == "exactly-once",
        )
        options = Options(name, arguments.guarantee, seed, strikes)
        failures += _kill(options, keeps=arguments.keep)
    return int(failures > 0)


def _kill(options: Options, *, keeps: bool) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"kill-{options.pipeline}-"))
    _say(f"{options.pipeline}, {options.guarantee}, seed {options.seed}, in {folder}")
    report = run(folder, options, _teller())
    for line in report_lines(report):
        _say(line)
    if report.problems:
        for line in failure_lines(report, folder):
            _say(line)
    elif not keeps:
        shutil.rmtree(folder)
    return len(report.problems)


def _teller() -> Callable[[str], None]:
    began_at = time.monotonic()
    return lambda line: _say(f"  {time.monotonic() - began_at:6.1f} s  {line}")


def _say(line: str) -> None:
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="over all pipelines together")
    parser.add_argument("--seed", type=int, help="the stream and the plan; another one each time")
    parser.add_argument("--pipeline", choices=CASES, help="one of them; all without it")
    parser.add_argument(
        "--guarantee", choices=("exactly-once", "at-least-once"), default="exactly-once"
    )
    parser.add_argument("--broker", action="store_true", help="kill the broker as well")
    parser.add_argument("--keep", action="store_true", help="keep logs and data of good runs too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
