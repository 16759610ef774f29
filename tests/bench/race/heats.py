"""Runs contestants in turn, and sees to it that all of them say the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from tests.bench.race.cluster import Cluster
from tests.bench.race.contestants import ORDERED, Contestant, Guarantee, Job
from tests.bench.race.figures import Figures, figures
from tests.bench.race.outcome import Outcome, check_beginning, check_same, read_outcome
from tests.bench.race.source import Source, pour, sent
from tests.bench.race.worker import watch


class Heat(NamedTuple):
    """One run to be made."""

    round: int | str
    """Its number, or what else it is run for."""
    operator: str
    contestant: Contestant
    guarantee: Guarantee

    @property
    def name(self) -> str:
        """Tells it from the other runs of the race."""
        return f"{self.operator}-{self.contestant.name}-{self.guarantee}-{self.round}"


class Track:
    """The broker, the input in it, and what came out of it for each operator."""

    def __init__(self, cluster: Cluster, source: Source, folder: Path) -> None:
        """Race over `source`, which `prepare` writes."""
        self.cluster = cluster
        self.outcomes: dict[str, Outcome] = {}
        self._source = source
        self._folder = folder
        # A broker that is not our own may still have topics of another race.
        self._prefix = f"race-{token_hex(4)}"

    async def prepare(self) -> None:
        """Write the input."""
        for topic in (self._topic("source"), self._topic("table")):
            await self.cluster.create(topic)
        records = sent(self._source)
        await pour(records, self._topic("source"), self.cluster.bootstrap_servers)

    async def clear(self) -> None:
        """Delete every topic of this race."""
        await self.cluster.delete_all(self._prefix)

    async def run(self, heat: Heat, commit_interval_ms: int) -> Figures:
        """One run; its output is compared, and then thrown away."""
        job = self.job(heat, commit_interval_ms)._replace(source=self._topic("source"))
        await self.cluster.create(job.sink)
        total = self._source.records_with_last
        watched = await watch(
            heat.contestant.command(job),
            job.log,
            self.cluster,
            (job.group, job.source, job.sink),
            goal=min(total, heat.contestant.records_max or total),
        )
        outcome = await read_outcome(job.sink, self.cluster.bootstrap_servers)
        self._agree(heat, outcome)
        await self.forget(job)
        label = (heat.contestant.name, heat.operator, heat.guarantee, heat.round)
        return figures(label, watched, outcome)

    def job(self, heat: Heat, commit_interval_ms: int) -> Job:
        """The instructions for a contestant's run over a topic of its own."""
        group = self._topic(heat.name)
        job = Job(
            operator=heat.operator,
            guarantee=heat.guarantee,
            group=group,
            source=f"{group}-source",
            sink=f"{group}-cleaned",
            table=self._topic("table"),
            bootstrap_servers=self.cluster.bootstrap_servers,
            folder=self._folder / group,
            commit_interval_ms=commit_interval_ms,
        )
        job.folder.mkdir()
        return job

    async def forget(self, job: Job) -> None:
        """Delete what a run left."""
        await self.cluster.delete_all(job.group)
        shutil.rmtree(job.folder)

    def _topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _agree(self, heat: Heat, outcome: Outcome) -> None:
        """Compare with whoever did the same first."""
        if heat.contestant.records_max is None:
            first = self.outcomes.setdefault(heat.operator, outcome)
            check_same(heat.name, outcome, first, ordered=heat.operator in ORDERED)
        elif heat.operator in self.outcomes:
            check_beginning(heat.name, outcome, self.outcomes[heat.operator])


def heats(
    rounds: int, operators: Sequence[str], contestants: Sequence[Contestant]
) -> Iterator[Heat]:
    """Every run, in turn: what disturbs a round disturbs all in it. Every other goes backwards."""
    for number in range(rounds):
        for operator in operators:
            takers = [
                Heat(number, operator, contestant, guarantee)
                for contestant in contestants
                if operator in contestant.operators
                for guarantee in contestant.guarantees
            ]
            yield from takers if number % 2 == 0 else reversed(takers)
