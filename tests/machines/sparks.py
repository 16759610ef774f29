"""The tests that start Spark, on the newest version of Spark that we run on.

`make test` runs them on the oldest, which `requirements.lock` names. Everything else is as the lock
has it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tests.machines.pythons import SPREAD
from tests.machines.steps import ROOT, Step, run

_VENV = Path(".venvs", "sparks")
_TESTS = ("tests/spark", "tests/testing/test_spark_queries.py")
_SECTIONS = ("spark", "drivers")
"""The sections of `make test-long` whose tests start Spark alone."""
_NEWEST = ("pyspark>=4.1,<4.2", "delta-spark>=4.4,<4.5")
_VERSION = "import pyspark; print(pyspark.__version__)"


def run_sparks(arguments: list[str]) -> bool:
    """Run as the command line says; whether all is well."""
    parser = argparse.ArgumentParser(prog="tests.machines sparks", description=__doc__)
    parser.parse_args(arguments)
    steps: dict[str, Step] = {}
    for name, words in _commands():
        log = ROOT / _VENV.parent / f"{_VENV.name}-{name}.log"
        steps[name] = run(words, log, environment={"HEADRACE_KAFKA": "process"})
        print(f"Newest Spark, {name}: {steps[name].cell}", flush=True)
        # Tests of one kind say nothing of those of another.
        if not steps[name].is_well and name in {"setup", "install", "version", "prepare"}:
            break
    version = steps["version"].says if "version" in steps else "not installed"
    failed = [name for name, step in steps.items() if not step.is_well]
    print(f"Spark {version}: {len(steps) - len(failed)} of {len(steps)} steps work {failed or ''}")
    return not failed


def _commands() -> Iterator[tuple[str, list[str | Path]]]:
    make: list[str | Path] = ["make", f"VENV={_VENV}"]
    python = ROOT / _VENV / "bin" / "python"
    pytest: list[str | Path] = [python, "-m", "pytest", *SPREAD]
    yield "setup", [*make, "setup"]
    yield "install", [python, "-m", "pip", "install", "--quiet", "--upgrade", *_NEWEST]
    yield "version", [python, "-c", _VERSION]
    yield "prepare", [*make, "spark"]
    yield "tests", [*pytest, *_TESTS]
    for section in _SECTIONS:
        yield section, [*pytest, "--long", section]
