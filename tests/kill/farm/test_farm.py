"""Runs of seeds that nobody has seen: `make kill-farm KILLS=n` does the same for longer.

A failure names its seed; `python -m tests.kill.farm --seed N --strikes 4` is that run again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chance import seed_of_run
from tests.kill.farm.carry import carry_out
from tests.kill.farm.draw import draw

RUNS = 2
STRIKES = 4
pytestmark = pytest.mark.long("kill", why="what is struck, and when, is drawn")


@pytest.mark.parametrize("run", range(RUNS))
def test_a_run_of_a_new_seed_is_right(tmp_path: Path, run: int) -> None:
    seed = seed_of_run() + run
    drawn = draw(seed, strikes=STRIKES)
    told = [f"run {run}, seed {seed}: {drawn}"]
    outcome = carry_out(tmp_path, drawn, told.append)
    assert (outcome.verdict, outcome.problems) == ("right", []), "\n".join(
        [*told, str(outcome.stuck), *map(str, drawn.strikes)]
    )
    assert outcome.records > 0
