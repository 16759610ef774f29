"""`headrace replay-dead`: dead letters go back to where they died."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import Progress

from headrace.contracts.decision import Reason
from headrace.contracts.pipeline import PipelineSpec
from headrace.services.admin.replay_dead import Choice, Fate, Tally, put_back
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.observe.logs import configure
from headrace.services.settings import read_settings

_Reason = Literal[
    "undecodable", "failed", "too-large", "future-timestamp", "negative-timestamp", "no-window"
]
"""Those of the reasons of all verdicts that a dead letter can have."""


def replay_dead(
    pipeline: Path,
    *,
    yes: Annotated[bool, Parameter(negative=())] = False,
    reason: _Reason | None = None,
    max_replays: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    bootstrap_servers: str | None = None,
) -> None:
    """Put dead letters back into the topic they were read from; without --yes, only count them.

    Each letter is put back once, however often this is run. One that dies again is a new letter.
    Brokers keep that in mind for a week after the last run with --yes (offsets.retention.minutes).

    Args:
        pipeline: The pipeline's YAML file.
        yes: Do it.
        reason: Put back only letters with this reason.
        max_replays: Leave out letters that were put back so often already.
        bootstrap_servers: The addresses of brokers: `host:port`, with commas between.
    """
    spec = load_pipeline(pipeline)
    settings = read_settings(bootstrap_servers=bootstrap_servers)
    # Of what libraries say of a broker that is away, one line each.
    configure(settings.log_format, settings.log_level, sys.stderr)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("reading letters", total=None)
        tally = asyncio.run(
            put_back(
                spec,
                settings,
                Choice(None if reason is None else Reason(reason), max_replays),
                lambda read, total: progress.update(bar, completed=read, total=total),
                really=yes,
            )
        )
    print(*_lines(spec, tally, done=yes), sep="\n")


def _lines(spec: PipelineSpec, tally: Tally, *, done: bool) -> Iterator[str]:
    if not tally:
        yield f"there are no letters in {spec.dead.topic} that were not dealt with"
        return
    for fate in Fate:
        reasons = {reason: count for (other, reason), count in tally.items() if other is fate}
        if reasons:
            named = ", ".join(
                f"{count} {reason}".strip() for reason, count in sorted(reasons.items())
            )
            would = "" if done or fate is not Fate.BACK else "would be "
            yield f"{would}{fate.value}: {sum(reasons.values())} ({named})"
    if not done:
        yield "nothing was changed; to put them back, add --yes"
