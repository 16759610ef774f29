"""The contestants: headrace under either guarantee, and stock Faust."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from tests.bench.rebalance.traffic import PARTITIONS

_INTERVAL_MS = 3_600_000
_RUNNING = re.compile(r"\] running .*?partition=(\d+)")
_RELEASED = re.compile(r"partitions released .*?partitions=\[(.*?)\]")
_NUMBER = re.compile(r"/(\d+)").findall
_STAMP = re.compile(r"^(\S+Z) ")


@dataclass
class Contest:
    """One contestant's topics and folder."""

    name: str
    servers: str
    folder: Path
    guarantee: str
    standbys: int = 1

    @property
    def source(self) -> str:
        """The topic that it reads."""
        return f"{self.name}.raw"

    @property
    def sink(self) -> str:
        """The topic that it writes."""
        return f"{self.name}.cleaned"


@dataclass
class Worker:
    """A process, and what it says."""

    process: subprocess.Popen[bytes]
    log_file: Path
    open_log: IO[bytes] = field(repr=False)

    @property
    def lines(self) -> list[str]:
        """All that it has said."""
        return self.log_file.read_text("utf-8", "replace").splitlines()

    def stop(self) -> None:
        """Tell it to stop; end it if it does not."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.open_log.close()


def headrace(contest: Contest, worker: str) -> Worker:
    """`headrace run`."""
    file = contest.folder / "pipeline.yaml"
    file.write_text(
        f"pipeline: {contest.name}\nsource: {{topic: {contest.source}}}\n"
        f"operators:\n  - deduplicate: {{by: key, interval: {_INTERVAL_MS}ms}}\n"
        f"sink: {{topic: {contest.sink}}}\n",
        "utf-8",
    )
    environment = {
        "HEADRACE_BOOTSTRAP_SERVERS": contest.servers,
        "HEADRACE_STATE_FOLDER": str(contest.folder / worker),
        "HEADRACE_GUARANTEE": contest.guarantee,
        "HEADRACE_STANDBYS": str(contest.standbys),
        "HEADRACE_MAX_WARMUP_REPLICAS": str(PARTITIONS),
        "HEADRACE_LOG_FORMAT": "text",
        "HEADRACE_MEMORY": "512MiB",
    }
    return _start(contest, worker, ["headrace.services.cli", "run", str(file)], environment)


def faust(contest: Contest, worker: str) -> Worker:
    """Stock Faust, as its own pages teach it."""
    environment = {
        "RACE_GROUP": contest.name,
        "RACE_BOOTSTRAP_SERVERS": contest.servers,
        "RACE_STATE_FOLDER": str(contest.folder / worker),
        "RACE_GUARANTEE": contest.guarantee,
        "RACE_COMMIT_INTERVAL_MS": "200",
        "RACE_PARTITIONS": str(PARTITIONS),
        "RACE_SOURCE": contest.source,
        "RACE_SINK": contest.sink,
        "RACE_INTERVAL_MS": str(_INTERVAL_MS),
    }
    words = ["tests.bench.peers.plain_faust", "worker", "--without-web", "--loglevel=info"]
    return _start(contest, worker, words, environment)


def _start(
    contest: Contest, worker: str, module: list[str], environment: Mapping[str, str]
) -> Worker:
    (contest.folder / worker).mkdir()
    log_file = contest.folder / f"{worker}.log"
    log = log_file.open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        env={**os.environ, **environment},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    return Worker(process, log_file, log)


def partitions_of(worker: Worker, source: str) -> set[int]:
    """The partitions that a worker of either kind has now."""
    if any("the group has shared out" in line for line in worker.lines):
        found: set[int] = set()
        for line in worker.lines:
            found |= set(map(int, _RUNNING.findall(line)))
            found -= {int(number) for names in _RELEASED.findall(line) for number in _NUMBER(names)}
        return found
    given = [line for line in worker.lines if "newly assigned partitions" in line]
    last = given[-1] if given else ""
    return set(map(int, re.findall(rf"topic='{re.escape(source)}', partition=(\d+)", last)))


def said_at(worker: Worker, words: str, since_s: float) -> list[float]:
    """When a headrace said something, since a time."""
    found = []
    for line in worker.lines:
        stamp = _STAMP.match(line)
        if stamp is not None and words in line:
            at_s = datetime.fromisoformat(stamp.group(1)).timestamp()
            if at_s >= since_s:
                found.append(at_s)
    return found
