"""The checkout as data: files, modules, syntax trees, imports."""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHIPPED = ("contracts", "services", "spark_jobs", "src")
WRITTEN = (*SHIPPED, "docker", "docs", "tests", ".ci")
"""Folders that people write; the files beside them are written as well."""
_TARGET = re.compile(r"(headrace[.\w]*):\w+|(tests\.[.\w]+)")


def path_of(file: Path) -> str:
    """A file's path from the root, as a failing test names it."""
    return file.relative_to(ROOT).as_posix()


@cache
def written_files() -> tuple[Path, ...]:
    """Every file of the project, without what tools leave behind."""
    inside = (file for folder in WRITTEN for file in (ROOT / folder).rglob("*"))
    beside = (file for file in ROOT.iterdir() if not file.name.startswith("."))
    files = {file for file in (*inside, *beside) if file.is_file()}
    return tuple(sorted(file for file in files if "__pycache__" not in file.parts))


def python_files(*folders: str) -> list[Path]:
    """The modules of some top-level folders."""
    return [
        file
        for file in written_files()
        if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in folders
    ]


def texts() -> Iterator[tuple[str, str]]:
    """Path and text of every file that is text."""
    for file in written_files():
        try:
            yield path_of(file), file.read_text("utf-8")
        except UnicodeDecodeError:
            continue


@cache
def tree_of(file: Path) -> ast.Module:
    """A module's syntax tree."""
    tree = parsed(file)
    # A million nodes stay. Each search for garbage of a later test took a second with them.
    gc.freeze()
    return tree


def parsed(file: Path) -> ast.Module:
    """Parse a module, without a search for garbage meanwhile.

    A search may log the exception of a forgotten future. Python parses the lines of a traceback,
    too, and a parser within which another one ran loses count of its depth: a SystemError
    (CPython 106905).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(file.read_text("utf-8"), str(file))
    finally:
        if was_enabled:
            gc.enable()


def module_name(file: Path) -> str:
    """The name that a file is imported by."""
    return ".".join(_without_init(imported_path(file).with_suffix("").parts))


def imported_path(file: Path) -> Path:
    """A file's place as Python and the wheel see it: our folders are one package there."""
    top, *inside = file.relative_to(ROOT).parts
    if top == "src":
        return Path(*inside)
    return Path("headrace", top, *inside) if top in SHIPPED else Path(top, *inside)


def _without_init(parts: tuple[str, ...]) -> tuple[str, ...]:
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def imports_of(file: Path) -> frozenset[str]:
    """Every name a module imports, anywhere in it; `from a import b` gives a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


@cache
def named_by(file: Path) -> frozenset[str]:
    """The modules of ours that a module loads by name: `"headrace.services.cli.plan:plan"`.

    pytest loads the plugins of the tests by the bare name of their module.
    """
    texts_in = (node.value for node in ast.walk(tree_of(file)) if isinstance(node, ast.Constant))
    found = (_TARGET.fullmatch(text) for text in texts_in if isinstance(text, str))
    return frozenset(match[1] or match[2] for match in found if match)


@cache
def project() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@cache
def make_targets() -> frozenset[str]:
    """The targets that `make` explains."""
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()
    return frozenset(line.partition(":")[0] for line in lines if ": " in line and "## " in line)
