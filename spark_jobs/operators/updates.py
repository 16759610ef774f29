"""Which changes of a table leave: each, or of a batch the last one of each key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.operators.topology import TableStep, above
from headrace.spark_jobs.versioned.state import MERGED

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.changes import Changes, Updates
    from headrace.spark_jobs.versioned.state import TaskState


def with_updates(topology: Any, updates: Updates) -> Any:
    """Return a table of which these changes leave, and so from each of its steps to the next."""
    if updates == "each":
        return topology
    if not isinstance(topology, TableStep):
        message = f"`{topology.name}` is no table, and only of a table the last updates can leave"
        raise TopologyRefused(message)
    steps = {name: with_updates(getattr(topology, name), updates) for name in above(topology)}
    return replace(topology, updates=updates, **steps)


def merged(changes: Changes, updates: Updates, state: TaskState) -> Changes:
    """Return the changes that leave a step, and count those that others replace."""
    if updates == "each":
        return changes
    last = changes.last_alone()
    state.count(MERGED, len(changes.causes) - len(last.causes))
    return last
