"""Runs many vectors through one broker, a few sidecars at a time."""

from __future__ import annotations

import asyncio
import secrets
import string
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from headrace.services.kafka.cluster import connected
from headrace.services.settings import Settings
from tests.conformance.sidecar.groups import Group, grouped
from tests.conformance.sidecar.trial import Broker, Manner, Trial
from tests.conformance.vectors import Vector
from tests.kafka.clients import Clients

_AT_ONCE = 6
_TOPIC_CHARACTERS = 12
_LETTERS = string.ascii_letters + string.digits


def run_vectors(
    vectors: Sequence[Vector], servers: str, folder: Path, manner: Manner
) -> list[list[str]]:
    """The disagreements of each vector with what the sidecars wrote, in the vectors' order."""
    return asyncio.run(_run(vectors, servers, folder, manner))


async def _run(
    vectors: Sequence[Vector], servers: str, folder: Path, manner: Manner
) -> list[list[str]]:
    settings = Settings(bootstrap_servers=servers)
    found: dict[int, list[str]] = {id(vector): [] for vector in vectors}
    async with connected(settings) as cluster:
        broker = Broker(cluster, Clients(servers), servers)
        names = _Names()
        trials = [
            Trial(group, names.fresh(group), folder / str(number))
            for number, group in enumerate(grouped(vectors))
        ]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def run(trial: Trial, tell: Callable[[], None]) -> None:
            async with slots:
                of_shares = await trial.run(broker, manner)
            for share, disagreements in zip(trial.group.shares, of_shares, strict=True):
                found[id(share.vector)] += disagreements
            tell()

        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("sidecars", total=len(trials))
            await asyncio.gather(*(run(trial, lambda: bar.advance(task)) for trial in trials))
    return [found[id(vector)] for vector in vectors]


class _Names:
    """Names for sources that nobody else on the broker has."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def fresh(self, group: Group) -> str:
        """As long as the group needs it; of short names there are only so many."""
        characters = group.topic_characters or _TOPIC_CHARACTERS
        for _ in range(len(_LETTERS) ** 2):
            name = "".join(secrets.choice(_LETTERS) for _ in range(characters))
            if name not in self._taken:
                self._taken.add(name)
                return name
        message = f"all names of {characters} characters are taken"
        raise AssertionError(message)
