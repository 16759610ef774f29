"""All that the page is made of, as `whole.json` keeps it: the rounds, and the delay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from tests.bench.whole import delay, measured
from tests.bench.whole.delay import Delayed
from tests.bench.whole.measured import Whole

_FILE = "whole.json"
_One = TypeVar("_One")


class Told(NamedTuple):
    """By which command something was measured, and where."""

    command: str
    where: str
    versions: str
    loads: list[str]
    """How busy the machine was before, and behind it."""


class Part(NamedTuple, Generic[_One]):
    """One part of the page."""

    told: Told
    runs: list[_One]


class Kept(NamedTuple):
    """Both parts, as far as they were measured."""

    rounds: Part[Whole] | None = None
    delay: Part[Delayed] | None = None


def read(folder: Path) -> Kept:
    """Read what a folder keeps."""
    file = folder / _FILE
    if not file.exists():
        return Kept()
    said = json.loads(file.read_text("utf-8"))
    rounds, delays = said.get("rounds"), said.get("delay")
    return Kept(
        rounds and Part(Told(**rounds["told"]), [*map(measured.loaded, rounds["runs"])]),
        delays and Part(Told(**delays["told"]), [*map(delay.loaded, delays["runs"])]),
    )


def write(folder: Path, kept: Kept) -> None:
    """Write a folder's file."""
    said: dict[str, object] = {}
    if kept.rounds is not None:
        runs = [*map(measured.dumped, kept.rounds.runs)]
        said["rounds"] = {"told": kept.rounds.told._asdict(), "runs": runs}
    if kept.delay is not None:
        delays = [*map(delay.dumped, kept.delay.runs)]
        said["delay"] = {"told": kept.delay.told._asdict(), "runs": delays}
    (folder / _FILE).write_text(json.dumps(said, indent=1) + "\n", "utf-8")
