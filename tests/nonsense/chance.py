"""A seed of each run's own, which is told, so that what was found can be had again."""

from __future__ import annotations

import random


def fresh_seed() -> int:
    """A seed, printed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return seed
