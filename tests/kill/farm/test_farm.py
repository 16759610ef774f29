"""Runs of seeds that nobody has seen: `make kill-farm KILLS=n` does the same for longer.

A failure names its seed; `python -m tests.kill.farm --seed N --strikes 4` is that run again.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.kill.farm.carry import carry_out
from tests.kill.farm.draw import draw

RUNS = 2
"""As many as fit into a minute and a half of a quiet machine."""
STRIKES = 4


@pytest.mark.parametrize("run", range(RUNS))
def test_a_run_of_a_new_seed_is_right(tmp_path: Path, run: int) -> None:
    seed = secrets.randbelow(1 << 31)
    drawn = draw(seed, strikes=STRIKES)
    told = [f"run {run}, seed {seed}: {drawn}"]
    outcome = carry_out(tmp_path, drawn, told.append)
    assert (outcome.verdict, outcome.problems) == ("right", []), "\n".join(
        [*told, str(outcome.stuck), *map(str, drawn.strikes)]
    )
    assert outcome.records > 0
