"""Sample what the sidecars take, and find what grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_GROWTH_MAX = 0.1


class Sample(NamedTuple):
    """One look; memory and descriptors are of the instance that nobody kills."""

    minute: float
    memory_mib: float
    descriptors: float
    disk_mib: float
    """The state folders of all instances."""
    changelog_mib: float
    behind: float
    """How many records were sent and not committed yet."""


LEVELS = {
    "memory_mib": "memory, MiB",
    "descriptors": "descriptors",
    "disk_mib": "disk, MiB",
    "changelog_mib": "changelogs, MiB",
    "behind": "behind",
}


def grown(samples: Sequence[Sample]) -> list[str]:
    """Say what grows: the highest of the last third against the highest of the third before."""
    third = len(samples) // 3
    if third == 0:
        return ["too few looks to tell"]
    found = []
    for name, title in LEVELS.items():
        before, last = (
            max(getattr(one, name) for one in part)
            for part in (samples[-2 * third : -third], samples[-third:])
        )
        if name != "behind" and last > before * (1 + _GROWTH_MAX):
            found.append(
                f"{title}: {before:,.0f} at most in the second third, {last:,.0f} in the last"
            )
    return found
