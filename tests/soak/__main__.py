"""`make soak`: an hour of load and kills; every record accounted for, every level watched."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.page import PICTURE, page, picture, problems
from tests.soak.run import Plan, soak

_MINUTES_MIN = 1.0
"""A level is seen to grow in three looks, a quarter of a minute apart."""


def main() -> int:
    """Run what the arguments say; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--records-per-second", type=int, default=3_000)
    parser.add_argument("--factor", type=int, default=60, help="of the records' time to the clock")
    parser.add_argument("--kill-each", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--results", type=Path, help="a folder for soak.md and its picture")
    options = parser.parse_args()
    if options.minutes < _MINUTES_MIN:
        parser.error(
            f"a soak of {options.minutes:g} minutes is too short to tell what grows; give it"
            f" {_MINUTES_MIN:g} or more"
        )
    plan = Plan(options.minutes, options.records_per_second, options.factor, options.kill_each)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
    # Clients whose group is rebalanced have much to say, and nothing that is news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    _say(f"soak of {plan.minutes:g} minutes, in {folder}")
    outcome = soak(folder, plan, _say)
    wrong = problems(outcome)
    for line in wrong:
        _say(f"wrong: {line}")
    if not wrong:
        _say(f"all is accounted for, and nothing grows; {outcome.kills} kills")
        shutil.rmtree(folder)
    if options.results is not None:
        command = f"make soak MINUTES={plan.minutes:g}"
        (options.results / "soak.md").write_text(page(plan, outcome, command), "utf-8")
        (options.results / PICTURE).write_text(picture(outcome.samples), "utf-8")
    return int(bool(wrong))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
