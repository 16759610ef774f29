"""Runs the farm (`make kill-farm KILLS=n`) until so many were killed on this commit.

It goes on where it ended, and fails as long as any run of this commit is not right.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys
import time
from pathlib import Path

from tests.kill.farm.carry import Outcome, carry_out
from tests.kill.farm.draw import draw
from tests.kill.farm.results import add, kills_of, line_of, of_commit, read, table
from tests.machines.steps import commit_here

_TITLE = """# The kill farm

Written by `make kill-farm`; `farm.jsonl` has a line for each run. A seed gives the same run on the
same commit. Since lines have `struck`, plans have changed options, full disks and wrong clocks in
them, and the seeds of the lines before give other plans."""
_RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    """Run what the arguments say; 1 if a run of this commit was not right."""
    arguments = _arguments()
    commit = commit_here()
    # Clients of a broker that is being killed have much to say, and nothing that is news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    arguments.results.mkdir(parents=True, exist_ok=True)
    lines_file = arguments.results / "farm.jsonl"
    give_up_at = time.monotonic() + 60 * arguments.minutes
    while True:
        lines = of_commit(read(lines_file), commit)
        enough = kills_of(lines) >= arguments.kills and arguments.seed is None
        if enough or time.monotonic() > give_up_at:
            break
        seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
        _run(seed, arguments, lines_file, commit)
        if arguments.seed is not None:
            break
    lines = read(lines_file)
    text = "\n".join(table(lines))
    (arguments.results / "farm.md").write_text(f"{_TITLE}\n\n{text}\n")
    _say(text)
    of_this = of_commit(lines, commit)
    wrong = sum(line["verdict"] != "right" for line in of_this)
    _say(f"{len(of_this)} runs of {commit}, {kills_of(of_this)} struck down; {wrong} not right")
    return int(wrong > 0)


def _run(seed: int, arguments: argparse.Namespace, lines_file: Path, commit: str) -> None:
    drawn = draw(seed, strikes=arguments.strikes)
    _say(f"seed {seed}: {drawn}")
    folder = arguments.evidence / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began_at = time.monotonic()
    outcome = carry_out(
        folder, drawn, lambda line: _say(f"  {time.monotonic() - began_at:6.1f} s  {line}")
    )
    fails = outcome.verdict != "right"
    add(lines_file, line_of(outcome, folder if fails else None, commit))
    _say(
        f"  {outcome.verdict}: {outcome.worker_kills} workers, {outcome.broker_strikes} brokers,"
        f" {outcome.requests} requests struck; {outcome.records} records; {outcome.seconds:.0f} s"
    )
    for line in outcome.left_out:
        _say(f"  left out: {line}")
    if fails:
        _tell_failure(outcome, folder)
    else:
        shutil.rmtree(folder)


def _tell_failure(outcome: Outcome, folder: Path) -> None:
    lines = [f"stuck: {outcome.stuck}"] if outcome.stuck else []
    lines += outcome.problems
    lines += ["PLAN", *(str(strike) for strike in outcome.drawn.strikes)]
    (folder / "problems.txt").write_text("\n".join(lines) + "\n")
    for line in lines:
        _say(f"  {line}")
    _say(f"  logs, state and data are kept in {folder}")
    _say(f"  again: python -m tests.kill.farm --seed {outcome.drawn.seed}")


def _say(line: str) -> None:
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kill.farm", description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=1_000, help="of workers and brokers, by commit"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run behind")
    parser.add_argument("--seed", type=int, help="this run alone, again")
    parser.add_argument("--strikes", type=int, default=12, help="about so many a run")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="where lines and table are")
    parser.add_argument("--evidence", type=Path, default=Path("farm-evidence"), help="what failed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
