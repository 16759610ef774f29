"""The options of the command line."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.race.contestants import CONTESTANTS, GUARANTEES, OPERATORS, Guarantee

LATENCY, RESTORE = "latency", "restore"
EVENTS = ("copy", *OPERATORS, LATENCY, RESTORE)


@dataclass(frozen=True, slots=True)
class Options:
    """The operators, the contestants, and the length of the race."""

    command: str
    only: list[str]
    peers: list[str]
    guarantees: list[Guarantee]
    records: int
    keys: int
    rounds: int
    commit_interval_ms: int
    latency_seconds: int
    bootstrap_servers: str | None
    results: Path | None
    """Where files are written; without it the results are only printed."""


def read_options() -> Options:
    """The command line, or a sentence about it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.race",
        description="headrace and its peers, from the same records, on one broker.",
    )
    parser.add_argument("--only", nargs="+", choices=EVENTS, default=EVENTS)
    parser.add_argument("--peers", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--guarantees", nargs="+", choices=GUARANTEES, default=list(GUARANTEES))
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--keys", type=int, default=900_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commit-interval-ms", type=int, default=200)
    parser.add_argument("--latency-seconds", type=int, default=20)
    parser.add_argument("--bootstrap-servers", help="a broker that runs already")
    parser.add_argument("--results", type=Path, help="a folder for race.md, race.json and race.svg")
    command = shlex.join(["python", "-m", "tests.bench.race", *sys.argv[1:]])
    return Options(command=command, **vars(parser.parse_args()))
