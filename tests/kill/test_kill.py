"""Ten kills, with everything that a plan has: `make kill-test KILLS=n` does the same for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kill.chaos import KILLS_A_HAND, plan
from tests.kill.report import Options, failure_lines, report_lines
from tests.kill.run import run

pytestmark = pytest.mark.long("kill", why="when it strikes is drawn")

SEED = 4


def test_ten_kills_lose_double_and_dirty_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    options = Options("chain", "exactly-once", SEED, plan(SEED, KILLS_A_HAND))
    report = run(tmp_path, options, told.append)
    lines = [*told, *report_lines(report), *failure_lines(report, tmp_path)]
    assert report.problems == [], "\n".join(lines)
    assert report.kills >= KILLS_A_HAND
