"""The wheel, in empty folders, with other versions of its libraries and with few of its extras.

It is installed with the newest libraries that pip finds within our ranges, and with the lowest that
they allow. Every module of the extras that are there is imported, every command is asked for, and
what is not there is one sentence with pip's command.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from packaging.requirements import Requirement

from tests.machines import alone
from tests.machines.interpreters import Interpreter, interpreters
from tests.machines.steps import NOT_RUN, ROOT, Step, run, show_table

_TOOLS = ("hypothesis", "pytest", "pytest-xdist", "testcontainers")
_SIDECAR_TESTS = ("tests/runtime", "tests/state", "tests/intake", "tests/observe", "tests/settings")
_OF_THE_CHECKOUT = (
    "--deselect=tests/observe/test_metrics.py::test_the_page_of_names_is_up_to_date",
    "--ignore=tests/versioned/test_semantics.py",
    "--ignore=tests/runtime/test_beside_others.py",
)
_SPARK_TESTS = (
    "tests/queries/test_sql.py",
    "tests/testing/test_spark_queries.py",
    "tests/versioned",
    "tests/spark/test_operators.py",
    "tests/spark/test_write_kafka.py",
)
_HEAD = ("extras", "versions", "Python", "imports and commands", "tests")


class Case(NamedTuple):
    """An environment, and the tests that run in it."""

    extras: tuple[str, ...]
    is_lowest: bool
    tests: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """With its versions."""
        versions = "lowest" if self.is_lowest else "newest"
        return "-".join([*(self.extras or ("none",)), versions])


CASES = (
    Case(("sidecar",), is_lowest=True, tests=_SIDECAR_TESTS),
    Case(("sidecar", "spark"), is_lowest=False, tests=_SIDECAR_TESTS),
    Case(("spark",), is_lowest=True, tests=_SPARK_TESTS),
    Case((), is_lowest=False),
)


def run_libraries(arguments: list[str]) -> bool:
    """Run as the command line says; whether all is well."""
    parser = argparse.ArgumentParser(prog="tests.machines libraries", description=__doc__)
    parser.add_argument("only", nargs="*", choices=[*(case.name for case in CASES), []])
    options = parser.parse_args(arguments)
    found = interpreters()
    oldest, newest = found[0], found[-1]
    ran: list[tuple[Case, Interpreter, dict[str, Step]]] = []
    with TemporaryDirectory(prefix="headrace-wheel-") as folder:
        wheel = _built(Path(folder))
        for case in CASES:
            if not options.only or case.name in options.only:
                interpreter = oldest if case.is_lowest else newest
                ran.append((case, interpreter, _run_case(case, interpreter, wheel)))
    show_table(_HEAD, _rows(ran))
    failed = [
        case.name for case, _, steps in ran if not all(step.is_well for step in steps.values())
    ]
    print(f"Libraries: {len(ran) - len(failed)} of {len(ran)} work {failed or ''}", flush=True)
    return not failed


def lowest(requirements: list[str]) -> Iterator[str]:
    """Return the lowest version of each range, as constraints for pip."""
    for text in requirements:
        requirement = Requirement(text)
        for bound in requirement.specifier:
            if bound.operator in {">=", "=="}:
                yield f"{requirement.name}=={bound.version}"


def _built(folder: Path) -> Path:
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory")
    built = run([*build, folder], folder / "log")
    assert built.is_well, "the wheel cannot be built"
    return next(folder.glob("*.whl"))


def _run_case(case: Case, interpreter: Interpreter, wheel: Path) -> dict[str, Step]:
    """Install, ask for everything, then test; it stops at the first step that fails."""
    with TemporaryDirectory(prefix="headrace-empty-") as temporary:
        folder = Path(temporary)
        steps: dict[str, Step] = {}
        for name, words in _commands(case, interpreter, wheel, folder):
            log = ROOT / ".venvs" / f"{case.name}-{name}.log"
            steps[name] = run(words, log, folder=folder, environment={"HEADRACE_KAFKA": "process"})
            print(f"Libraries, {case.name}, {name}: {steps[name].cell}", flush=True)
            if not steps[name].is_well:
                break
        return steps


def _commands(
    case: Case, interpreter: Interpreter, wheel: Path, folder: Path
) -> Iterator[tuple[str, list[str | Path]]]:
    python = folder / "venv" / "bin" / "python"
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = stated["optional-dependencies"]
    bounded = [*stated["dependencies"], *extras["sidecar"], *extras["spark"]]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(lowest(bounded)) if case.is_lowest else "", "utf-8")
    tools = [one for one in extras["dev"] if Requirement(one).name in _TOOLS]
    install: list[str | Path] = [
        *(python, "-m", "pip", "install", "--disable-pip-version-check"),
        *("--constraint", constraints),
    ]
    yield "venv", [interpreter.path, "-m", "venv", folder / "venv"]
    yield "install", [*install, _asked(wheel, *case.extras)]
    yield "alone", [python, "-P", Path(alone.__file__), *case.extras]
    if case.tests:
        # No test may find in the checkout what is not installed.
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        # The tests' own clients of Kafka are the sidecar's.
        yield "tools", [*install, _asked(wheel, *{*case.extras, "sidecar"}), *tools]
        # Warnings between other versions of libraries are not ours.
        options = ["-n", "auto", "--dist", "loadfile", "--override-ini", "filterwarnings=default"]
        yield "tests", [python, "-m", "pytest", *options, *_OF_THE_CHECKOUT, *case.tests]


def _asked(wheel: Path, *extras: str) -> str:
    return f"{wheel}[{','.join(extras)}]" if extras else str(wheel)


def _rows(ran: list[tuple[Case, Interpreter, dict[str, Step]]]) -> Iterator[list[str]]:
    for case, interpreter, steps in ran:
        failed = next((step for step in steps.values() if not step.is_well), None)
        tested = failed or steps.get("tests")
        yield [
            ", ".join(case.extras) or "none",
            "lowest" if case.is_lowest else "newest",
            interpreter.name,
            steps["alone"].cell if "alone" in steps else NOT_RUN,
            tested.cell if tested is not None else (NOT_RUN if case.tests else "none"),
        ]
