"""The seed of what is drawn: the same in every run of `make test`, another in `make test-long`."""

from __future__ import annotations

import os

SEED = "HEADRACE_SEED"


def seed_of_run() -> int:
    """HEADRACE_SEED, which `make test-long` draws anew for each section and notes; 1 without."""
    return int(os.environ.get(SEED, "1"))
