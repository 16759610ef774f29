"""The moments at which a strike hurts most, awaited by what broker and worker leave on disk.

    open         the victim's output stands in the cleaned topic, its transaction has not ended
    committing   rows stand in a changelog of the victim's, their transaction has not ended
    committed    such a transaction has just ended: its rows are on their way to the victim's disk
    restoring    the victim has just been given partitions, and makes their state good
    working      at least one of the victim's partitions runs
    any          whatever it is at

A random moment mostly finds a worker that waits for records. These windows last milliseconds, and
on a busy machine nobody hits them by chance.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from headrace.contracts.pipeline import PipelineSpec
from tests.kill.segments import Tail
from tests.kill.workers import Worker

Moment = Literal["open", "committing", "committed", "restoring", "working", "any"]
_LOOK_AGAIN_S = 0.001
_ENDS_WITHIN_S = 0.005
"""A broker mostly ends within it what it was told to end; where it does not, a blow misses."""
_SURELY_ENDS_WITHIN_S = 0.1
"""The same for a blow that must not miss, on a machine that is busy."""


class Moments:
    """Looks at a broker's files, and at what a worker says."""

    def __init__(self, data: Path, spec: PipelineSpec, partitions: int) -> None:
        """The topics of this pipeline, in the broker's folder `data`."""
        self._spec = spec
        self._partitions = partitions
        self._data = data
        self._tails: dict[tuple[str, int], Tail] = {}

    def wait(self, moment: Moment, victim: Worker, within_s: float, *, holds: bool = False) -> bool:
        """Return in the moment itself; False if it did not come in time.

        `holds`, the victim of an open transaction stands still until it is struck: a machine that
        is busy gives it time to commit.
        """
        give_up_at = time.monotonic() + within_s
        was_open: set[tuple[str, int]] | None = None
        while time.monotonic() < give_up_at:
            victim.look()
            victim.start()
            if moment == "any":
                return True
            if moment == "restoring" and victim.has_partitions():
                return True
            if moment == "working" and victim.works():
                return True
            if moment in {"open", "committing", "committed"} and victim.works():
                now_open = self._stays_open(moment, victim, holds=holds)
                before = now_open if was_open is None else was_open
                changed = before - now_open if moment == "committed" else now_open - before
                if not (changed and holds):
                    victim.thaw()
                if changed:
                    return True
                was_open = now_open
            time.sleep(_LOOK_AGAIN_S)
        return False

    def _stays_open(self, moment: Moment, victim: Worker, *, holds: bool) -> set[tuple[str, int]]:
        """Freeze the victim, and return its open transactions, which stay open.

        A commit would be over before the blow. A transaction that ends meanwhile had been told to
        end.
        """
        victim.freeze()
        found = self._open(moment, victim)
        if found and moment != "committed":
            # No broker says that no end is under way; only time tells.
            time.sleep(_SURELY_ENDS_WITHIN_S if holds else _ENDS_WITHIN_S)
            found = self._open(moment, victim)
        return found

    def _open(self, moment: Moment, victim: Worker) -> set[tuple[str, int]]:
        """The partitions of the victim's topics in which a transaction is open."""
        found = set()
        owned = victim.partitions()
        for hop in self._spec.hops():
            topic = hop.changelog.name
            if moment == "open":
                if hop.end is not None:
                    continue
                topic = self._spec.sink.topic
            for partition in range(self._partitions):
                if f"{hop.topic}/{partition}" in owned and self._is_open(topic, partition):
                    found.add((topic, partition))
        return found

    def _is_open(self, topic: str, partition: int) -> bool:
        place = topic, partition
        tail = self._tails.get(place)
        if tail is None:
            tail = self._tails[place] = Tail(self._data / f"{topic}-{partition}")
        tail.read_on()
        return tail.is_open
