"""The results of a run, and a report for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.kill.chaos import Strike, Struck
from tests.kill.compare import Difference
from tests.kill.segments import Transactions

_HITS_WITHIN_S = 8.0
_LEASE = "records of an earlier lease left"
_GUARD = "records turned away: state has them"
_FENCED = "a partition failed; back to what is committed"
_SAID = 14


class Options(NamedTuple):
    """The options of a run."""

    pipeline: str
    guarantee: str
    seed: int
    strikes: list[Strike]

    @property
    def exactly_once(self) -> bool:
        """Whether nothing may ever come twice."""
        return self.guarantee == "exactly-once"


@dataclass
class Report:
    """The results of a run."""

    options: Options
    struck: Struck
    broker_kills: int
    difference: Difference
    aborts: Transactions
    source: int
    """Committed records in the source."""
    source_aborted: int
    """Records in the source that must never be seen."""
    aborted_copies: int
    """Records that the service wrote, and that those see alone who read everything."""
    rows: int
    """Rows of state that were compared."""
    disks: int
    """Databases that were looked at right after a kill."""
    said: Counter[str]
    """The workers' messages, by how often."""
    gave_up: list[str]
    """Workers that ended by themselves, with a sentence, and were started again."""
    problems: list[str]
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """How many workers were killed."""
        return len(self.struck.kills_at)

    @property
    def hits(self) -> int:
        """Kills that tore at least one transaction: aborted before the next kill, or soon."""
        hits = 0
        for at_s, next_s in pairwise([*self.struck.kills_at, float("inf")]):
            end_s = min(next_s, at_s + _HITS_WITHIN_S)
            hits += any(at_s < aborted_s < end_s for aborted_s in self.aborts.aborted_at)
        return hits

    def emptiness(self) -> Iterator[str]:
        """Why a run that found nothing wrong may have looked at nothing."""
        must_be: dict[str, int] = {
            "record was read": self.source,
            "record of an aborted transaction stood in the source": self.source_aborted,
            "record was cleaned": self.difference.records,
            "row of state was compared": self.rows,
        }
        if self.options.exactly_once and self.kills:
            must_be["transaction of a worker was ever aborted"] = self.aborts.aborted
        for what, times in must_be.items():
            if not times:
                yield f"the run shows nothing: no {what}"


def report_lines(report: Report) -> Iterator[str]:
    """Report the strikes, the observations, and the results."""
    struck, aborts, difference = report.struck, report.aborts, report.difference
    kinds = ", ".join(f"{times} {kind}" for kind, times in sorted(struck.count.items()))
    yield f"  strikes      {report.kills} kills, {struck.wiped} with the disk lost ({kinds})"
    moments = ", ".join(f"{times} {moment}" for moment, times in struck.moments.items())
    yield f"  in moments   {moments}"
    yield f"  source       {report.source} records; {report.source_aborted} in aborted transactions"
    yield (
        f"  compared     {difference.records} records, {report.rows} rows of state,"
        f" {report.disks} databases after kills"
    )
    yield (
        f"  transactions {aborts.committed} committed, {aborts.aborted} aborted, seen by none:"
        f" {report.aborted_copies} records; {report.hits} of {report.kills} kills tore one"
    )
    yield (
        f"  stopped by   the lease {report.said[_LEASE]}, the guard {report.said[_GUARD]},"
        f" a failed transaction {report.said[_FENCED]} times"
    )
    for event, times in report.said.most_common(_SAID):
        yield f"  said         {times:4} x {event}"
    for line in report.gave_up:
        yield f"  gave up      {line}"
    repeats = f", {difference.repeated} repeated (allowed)" if difference.repeated else ""
    yield (
        f"  RESULT       {difference.lost} lost, {difference.doubled} doubled,"
        f" {difference.dirty} dirty{repeats}; {len(report.problems)} problems;"
        f" {report.seconds:.0f} s"
    )


def failure_lines(report: Report, folder: Path) -> Iterator[str]:
    """All that is needed to see it again."""
    options = report.options
    yield "PROBLEMS"
    yield from (f"  {problem}" for problem in report.problems)
    yield "PLAN"
    yield from (f"  {strike}" for strike in options.strikes)
    yield f"logs, state and the broker's data are kept in {folder}"
    broker = " --broker" if report.broker_kills else ""
    yield (
        f"again: python -m tests.kill --pipeline {options.pipeline} --seed {options.seed}"
        f" --kills {sum(strike.kills for strike in options.strikes)}"
        f" --guarantee {options.guarantee}{broker}"
    )
