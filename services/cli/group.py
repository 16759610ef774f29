"""`headrace group`: who runs, follows and learns what, and why the group last rebalanced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from headrace.contracts.errors import MemberForeign
from headrace.contracts.hops import Hop
from headrace.services.admin.lags import lags_of
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.group.view import GroupView, MemberView, view_of
from headrace.services.kafka.cluster import group_now
from headrace.services.kafka.coordinator import PROTOCOL
from headrace.services.settings import read_settings

_STABLE = "Stable"
Lags = Mapping[tuple[str, int], int]
"""How far the group is behind the end of a source's partition, by topic and partition."""


def group(
    pipeline: Path,
    *,
    as_json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    bootstrap_servers: str | None = None,
) -> None:
    """Show a pipeline's instances, their partitions and copies, and the last rebalance.

    Args:
        pipeline: The pipeline's YAML file.
        as_json_: Print JSON.
        bootstrap_servers: The addresses of brokers: `host:port`, with commas between.
    """
    spec = load_pipeline(pipeline)
    settings = read_settings(bootstrap_servers=bootstrap_servers)
    now = asyncio.run(group_now(spec.pipeline, settings))
    if now.members and now.protocol not in {"", PROTOCOL}:
        message = (
            f"the members of group `{spec.pipeline}` share out partitions by `{now.protocol}`: they"
            " are no instances of the pipeline, or of an older headrace; stop them"
        )
        raise MemberForeign(message)
    # Between two rounds a broker says nothing of what members said and were told.
    is_settled = now.state == _STABLE
    view = view_of(now.members if is_settled else [], spec.hops())
    lags = asyncio.run(lags_of(spec.pipeline, spec.hops(), settings)) if view.members else {}
    if as_json_:
        shown = _as_json(view, spec.hops(), lags)
        print(json.dumps({"group": spec.pipeline, "state": now.state, **shown}))
        return
    console = Console(highlight=False)
    console.print(Text(f"{spec.pipeline}: {now.state.lower()}, members: {len(now.members)}"))
    if view.rebalanced_at_ms is not None:
        at = datetime.fromtimestamp(view.rebalanced_at_ms / 1000, UTC).isoformat(" ", "seconds")
        why = "; ".join(view.reasons) or "a member left, or was counted out"
        console.print(Text(f"last rebalance: {at}, because: {why}"), soft_wrap=True)
        print_members(view, spec.hops(), lags, console)


def print_members(
    view: GroupView, hops: Sequence[Hop], source_lags: Lags, console: Console
) -> None:
    """Print who does what; a name that a line has no room for goes on in the next."""
    for member in view.members:
        # In bare text rich would draw a picture for what stands between two colons of IPv6.
        console.print(Text(f"\n{member.name} on {member.host}"), soft_wrap=True)
        whole = [Column(no_wrap=True) for _ in range(2)]
        lines = Table.grid(Column(overflow="fold"), *whole, padding=(0, 2))
        for topic, partition, role, lag in _rows(member, hops, source_lags):
            behind = "lag not told yet" if lag is None else f"lag {lag}"
            lines.add_row(f"{topic}/{partition}", role, behind)
        shown = lines if lines.row_count else "idle"
        console.print(Padding(shown, (0, 0, 0, 2), expand=False))


def _rows(
    member: MemberView, hops: Sequence[Hop], source_lags: Lags
) -> Iterator[tuple[str, int, str, int | None]]:
    """Yield the tasks of a member, each with its lag behind the source or behind its changelog."""
    roles = (("active", member.active), ("learner", member.learners), ("standby", member.standbys))
    for role, tasks in roles:
        for task in sorted(tasks):
            topic, partition = hops[task.hop].topic, task.partition
            behind = source_lags.get((topic, partition))
            yield topic, partition, role, behind if role == "active" else member.lags.get(task)


def _as_json(view: GroupView, hops: Sequence[Hop], source_lags: Lags) -> dict[str, Any]:
    names = ("topic", "partition", "role", "lag")
    return {
        "rebalanced_at_ms": view.rebalanced_at_ms,
        "reasons": view.reasons,
        "members": [
            {
                "name": member.name,
                "host": member.host,
                "generation": member.generation,
                "tasks": [
                    dict(zip(names, row, strict=True)) for row in _rows(member, hops, source_lags)
                ],
            }
            for member in view.members
        ],
    }
