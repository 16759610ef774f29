"""Compare a contestant with another one, round by round: neighbours have the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median


def compared(figures: Mapping[int, float], others: Mapping[int, float]) -> tuple[str, str]:
    """Return figures as a multiple of others of their rounds: in the middle, and in the worst."""
    ratios = {number: each / others[number] for number, each in figures.items() if number in others}
    if not ratios:
        return "", ""
    worst = min(ratios, key=lambda number: ratios[number])
    return f"{median(ratios.values()):.2f}x", f"{ratios[worst]:.2f}x, round {worst + 1}"
