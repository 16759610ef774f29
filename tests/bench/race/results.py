"""All that a race found, as it is kept in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tests.bench.race.figures import Figures
from tests.bench.race.latency import Latency
from tests.bench.race.restore import Restore


class Circumstances(NamedTuple):
    """Where, when it was how busy, with what, and by which command."""

    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    loads: list[str]
    """Means of the last 1, 5 and 15 minutes, before and after."""
    records: int
    keys: int
    rounds: int
    commit_interval_ms: int


class Results(NamedTuple):
    """The whole race."""

    circumstances: Circumstances
    runs: list[Figures]
    latencies: list[Latency]
    restores: list[Restore]


def write_results(results: Results, file: Path) -> None:
    """Everything, each run by itself."""
    written = {
        "circumstances": results.circumstances._asdict(),
        "runs": [run._asdict() for run in results.runs],
        "latencies": [latency._asdict() for latency in results.latencies],
        "restores": [restore._asdict() for restore in results.restores],
    }
    file.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
