"""Lint, types, and all tests that need no Spark, on every Python of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.machines.interpreters import Interpreter, in_order, interpreters, missing
from tests.machines.steps import NOT_RUN, ROOT, Step, run, show_table

NEEDS_SPARK = (
    "--ignore=tests/spark",
    "--ignore=tests/cli/test_demo.py",
    "--ignore-glob=*/tests/*/test_spark*.py",
)
SPREAD = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "1")
_HEAD = ("Python", "whose", "lint", "types", "tests")


class Ran(NamedTuple):
    """The steps that ran on a Python."""

    interpreter: Interpreter
    steps: dict[str, Step]


def run_pythons(arguments: list[str]) -> bool:
    """Run as the command line says; whether all is well."""
    parser = argparse.ArgumentParser(prog="tests.machines pythons", description=__doc__)
    parser.parse_args(arguments)
    found = interpreters()
    ran = [_run_on(one) for one in in_order(found)]
    show_table(_HEAD, _rows(sorted(ran, key=lambda one: one.interpreter.version)))
    _say_which(found)
    return all(step.is_well for one in ran for step in one.steps.values())


def _run_on(interpreter: Interpreter) -> Ran:
    """Stop at the first step that fails."""
    venv = Path(".venvs", interpreter.name)
    make = ["make", f"VENV={venv}", f"PYTHON={interpreter.path}"]
    python = ROOT / venv / "bin" / "python"
    commands: dict[str, list[str | Path]] = {
        "setup": [*make, "setup"],
        "lint": [*make, "lint"],
        "types": [*make, "types"],
        "tests": [python, "-m", "pytest", *SPREAD, *NEEDS_SPARK],
    }
    # Types found for one Python say nothing of another; containers have a Python of their own.
    environment = {"MYPY_CACHE_DIR": str(venv / "mypy_cache"), "HEADRACE_KAFKA": "process"}
    steps: dict[str, Step] = {}
    for name, words in commands.items():
        log = ROOT / venv.parent / f"{interpreter.name}-{name}.log"
        steps[name] = run(words, log, environment=environment)
        print(f"Python {interpreter.name}, {name}: {steps[name].cell}", flush=True)
        if not steps[name].is_well:
            break
    return Ran(interpreter, steps)


def _rows(ran: list[Ran]) -> Iterator[list[str]]:
    for one in ran:
        steps = [(name, one.steps.get(name)) for name in _HEAD[2:]]
        cells = [
            NOT_RUN if step is None else "passes" if step.is_well and name != "tests" else step.cell
            for name, step in steps
        ]
        yield [one.interpreter.name, one.interpreter.whose, *cells]


def _say_which(found: list[Interpreter]) -> None:
    """Print the last line: which Pythons there are, and which there are not."""
    here = ", ".join(one.name for one in found) or "none"
    sentences = [f"Found Python {here}{' alone' if len(found) == 1 else ''}"]
    if lacking := missing(found):
        sentences.append(f"not found: {', '.join(lacking)}")
    print("; ".join(sentences) + ".", flush=True)
