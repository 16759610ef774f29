"""An installed headrace, with the extras that it has, and its sentences about those that it lacks.

Run by the Python of that environment, in an empty folder: `python alone.py sidecar spark`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {"sidecar": "headrace.services", "spark": "headrace.spark_jobs"}
READERS_OF_SCHEMAS = frozenset(
    f"headrace.contracts.serde.{name}" for name in ("asked", "avro", "protobuf", "registered")
)
"""They read what a registry has; each extra brings the libraries that they need."""
COMMANDS = {
    "sidecar": ("demo", "group", "inspect", "replay-dead", "reset", "run"),
    "spark": ("spark",),
}
_PIPELINE = """\
pipeline: clicks
source: {topic: clicks.raw}
operators: [deduplicate: {by: key, interval: 10m}]
sink: {topic: clicks.cleaned}
"""


def problems(extras: list[str]) -> Iterator[str]:
    """Yield the problems with these extras alone."""
    without = frozenset() if extras else READERS_OF_SCHEMAS
    for package in ("headrace.contracts", *(PACKAGES[extra] for extra in extras)):
        yield from _imports(package, without)
    Path("clicks.yaml").write_text(_PIPELINE, "utf-8")
    yield from _unless(0, "", "--help")
    yield from _unless(0, "", "plan", "clicks.yaml")
    yield from _unless(0, "", "broker", "--help")
    for extra, commands in COMMANDS.items():
        for command in commands:
            if extra in extras:
                yield from _unless(0, "", command, "--help")
            else:
                sentence = (
                    rf"`headrace {command}` needs \w+, which is not installed;"
                    rf" run: pip install 'headrace\[{extra}\]'\n"
                )
                yield from _unless(2, sentence, command, "clicks.yaml")
    if extras == ["sidecar"]:
        advice = r"(.*\n)*Spark is not here; pip install 'headrace\[spark\]' shows the rest.\n"
        yield from _unless(0, advice, "demo")


def _imports(package: str, without: frozenset[str]) -> Iterator[str]:
    """Every module of it but these can be imported, from where it was installed."""
    found = importlib.import_module(package)
    if not Path(str(found.__file__)).is_relative_to(sys.prefix):
        yield f"{package} comes from {found.__file__}"
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        if not module.name.endswith(".__main__") and module.name not in without:
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                yield f"import {module.name}: {error}"


def _unless(code: int, sentence: str, *words: str) -> Iterator[str]:
    """A command ends with this exit code, and says nothing but this where a sentence is given."""
    program = Path(sys.executable).with_name("headrace")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode != code or (sentence and not re.fullmatch(sentence, said)):
        yield f"headrace {' '.join(words)}: exit code {done.returncode}, and says: {said}"


if __name__ == "__main__":
    print("importing and asking for every command")
    lines = list(problems(sys.argv[1:]))
    print(*lines or ["passes"], sep="\n")
    sys.exit(bool(lines))
