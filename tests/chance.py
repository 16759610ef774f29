"""Chance in tests.

The seed of what is drawn is the same in every run of `make test`, another in `make test-long`.
"""

from __future__ import annotations

import os

from hypothesis import settings

SEED = "HEADRACE_SEED"
FEWER = settings(max_examples=max(1, settings().max_examples // 2))
"""For a property whose examples take long: records that move, or a database that is opened."""


def seed_of_run() -> int:
    """HEADRACE_SEED, which `make test-long` draws anew for each section and notes; 1 without."""
    return int(os.environ.get(SEED, "1"))
