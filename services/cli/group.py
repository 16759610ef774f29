"""`headrace group`: who runs, follows and learns what, and why the group last rebalanced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from contracts.errors import MemberForeign
from contracts.hops import Hop
from contracts.pipeline import PipelineSpec
from services.cli.pipeline_file import load_pipeline
from services.group.member import TaskId
from services.group.view import GroupView, MemberView, view_of
from services.runtime.cluster import group_now
from services.runtime.coordinator import PROTOCOL
from services.settings import read_settings

_STABLE = "Stable"


def group(
    pipeline: Path,
    *,
    as_json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    bootstrap_servers: str | None = None,
) -> None:
    """Show a pipeline's instances, their partitions and copies, and the last rebalance.

    Args:
        pipeline: The pipeline's YAML file.
        as_json_: For machines.
        bootstrap_servers: Where the brokers are, `host:port` with commas between.
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
    if as_json_:
        print(json.dumps({"group": spec.pipeline, "state": now.state, **_as_json(view, spec)}))
        return
    console = Console(highlight=False)
    console.print(f"{spec.pipeline}: {now.state.lower()}, members: {len(now.members)}")
    if view.rebalanced_at_ms is not None:
        at = datetime.fromtimestamp(view.rebalanced_at_ms / 1000, UTC).isoformat(" ", "seconds")
        why = "; ".join(view.reasons) or "a member left, or was counted out"
        console.print(f"last rebalance: {at}, because: {why}")
        console.print(_table(view, spec.hops()))


def _table(view: GroupView, hops: Sequence[Hop]) -> Table:
    table = Table("member", "host", "topic", "partition", "role", "lag")
    for member in view.members:
        rows = list(_rows(member, hops))
        for topic, partition, role, lag in rows:
            shown = "" if lag is None else str(lag)
            table.add_row(member.name, member.host, topic, str(partition), role, shown)
        if not rows:
            table.add_row(member.name, member.host, "", "", "idle", "")
    return table


def _rows(member: MemberView, hops: Sequence[Hop]) -> Iterator[tuple[str, int, str, int | None]]:
    roles = (("active", member.active), ("learner", member.learners), ("standby", member.standbys))
    for role, tasks in roles:
        for task in sorted(tasks):
            yield hops[task.hop].topic, task.partition, role, _lag(member, role, task)


def _lag(member: MemberView, role: str, task: TaskId) -> int | None:
    return None if role == "active" else member.lags.get(task)


def _as_json(view: GroupView, spec: PipelineSpec) -> dict[str, Any]:
    names = ("topic", "partition", "role", "lag")
    return {
        "rebalanced_at_ms": view.rebalanced_at_ms,
        "reasons": view.reasons,
        "members": [
            {
                "name": member.name,
                "host": member.host,
                "generation": member.generation,
                "tasks": [dict(zip(names, row, strict=True)) for row in _rows(member, spec.hops())],
            }
            for member in view.members
        ],
    }
