"""README's two commands in an empty folder, on the oldest and the newest Python of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.machines.interpreters import Interpreter, in_order, interpreters
from tests.machines.steps import NOT_RUN, ROOT, Step, run, show_table

_ENDS = 2
"""The first two of `in_order`."""
_COMMANDS = ("demo", "test")
_HEAD = ("Python", "whose", *(f"make {command}" for command in _COMMANDS))


class Ran(NamedTuple):
    """The commands that ran on a Python."""

    interpreter: Interpreter
    steps: dict[str, Step]


def run_whole(arguments: list[str]) -> bool:
    """Run as the command line says; whether all is well."""
    parser = argparse.ArgumentParser(prog="tests.machines whole", description=__doc__)
    parser.parse_args(arguments)
    ran = [_run_on(one) for one in in_order(interpreters())[:_ENDS]]
    show_table(_HEAD, (_row(one) for one in ran))
    print("; ".join(_sentence(one) for one in ran), flush=True)
    return all(len(one.steps) == len(_COMMANDS) and _are_well(one) for one in ran)


def _run_on(interpreter: Interpreter) -> Ran:
    """Stop at the first command that fails."""
    steps: dict[str, Step] = {}
    with TemporaryDirectory() as folder:
        checkout = Path(folder, "headrace")
        cloned = run(["git", "clone", "--quiet", ROOT, checkout], Path(folder, "clone.log"))
        assert cloned.is_well
        for command in _COMMANDS:
            log = ROOT / "build" / "whole" / f"{interpreter.name}-{command}.log"
            words = ["make", f"PYTHON={interpreter.path}", command]
            steps[command] = run(words, log, folder=checkout)
            print(f"Python {interpreter.name}, {command}: {steps[command].cell}", flush=True)
            if not steps[command].is_well:
                break
    return Ran(interpreter, steps)


def _are_well(ran: Ran) -> bool:
    return all(step.is_well for step in ran.steps.values())


def _row(ran: Ran) -> list[str]:
    cells = [ran.steps[one].cell if one in ran.steps else NOT_RUN for one in _COMMANDS]
    return [ran.interpreter.name, ran.interpreter.whose, *cells]


def _sentence(ran: Ran) -> str:
    took = (f"{command} {step.took_s / 60:.1f} min" for command, step in ran.steps.items())
    return f"{ran.interpreter.name}: {', '.join(took)}"
