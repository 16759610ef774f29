"""The style of the house, as far as a test can see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import (
    ROOT,
    SHIPPED,
    imports_of,
    module_name,
    named_by,
    path_of,
    project,
    python_files,
    texts,
    tree_of,
    written_files,
)

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
MAY_WAIT = ("services/kafka/", "services/runtime/", "services/admin/", "services/observe/http.py")
NAMELESS = {"core", "utils", "util", "common", "helpers", "base", "misc"}
# Spelt with brackets, or this file would find itself.
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
MACHINE_PATH = re.compile(r"(?<![\w.$)}~])/(home|root|Users|work|tmp|opt|mnt)/\w+")
REGISTRY = re.compile(r"://[^\s\"']*(pypi|pythonhosted|maven|conda|npmjs|nexus|artifactory)")
ASYNC_NODES = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def _everything() -> list[Path]:
    return python_files(*SHIPPED, "docker", "tests")


def _functions(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def _found(pattern: re.Pattern[str], *, outside: str = "") -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in texts()
        if not (outside and path.startswith(outside))
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_modules_are_short() -> None:
    lengths = {path_of(file): len(file.read_text().splitlines()) for file in _everything()}
    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_are_short() -> None:
    long = [
        f"{path_of(file)}: {name} has {lines} lines"
        for file in _everything()
        for name, lines in _functions(file)
        if lines > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_only_the_edges_wait() -> None:
    waiting = {
        path_of(file)
        for file in python_files(*SHIPPED)
        for node in ast.walk(tree_of(file))
        if isinstance(node, ASYNC_NODES) or (isinstance(node, ast.comprehension) and node.is_async)
    }
    assert [path for path in sorted(waiting) if not path.startswith(MAY_WAIT)] == []


def test_every_module_is_imported_by_another() -> None:
    stated = project()["project"]
    commands = [stated["scripts"], *stated.get("entry-points", {}).values()]
    started = {target.partition(":")[0] for group in commands for target in group.values()}
    imported = {name for file in _everything() for name in imports_of(file)}
    named = {name for file in _everything() for name in named_by(file)}
    dead = [
        path_of(file)
        for file in _everything()
        # Other modules import each public name.
        if not path_of(file).startswith("src/")
        and file.name not in {"__init__.py", "__main__.py", "conftest.py"}
        and not file.name.startswith("test_")
        and module_name(file) not in imported | started | named
    ]
    assert dead == []


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {file.parent for file in _everything()}
    assert [path_of(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_test_that_the_makefile_names_is_there() -> None:
    named = re.findall(r"tests/[\w/]+(?:\.py)?", (ROOT / "Makefile").read_text("utf-8"))
    # Folders of results are made by those who write to them.
    expected = {path for path in named if not path.endswith("/results")}
    assert {path for path in expected if not (ROOT / path).exists()} == set()
    assert expected


def test_names_say_something() -> None:
    paths = [file.relative_to(ROOT) for file in written_files()]
    assert [str(path) for path in paths if NAMELESS & {*path.parts[:-1], path.stem}] == []


def test_code_leaves_no_unfinished_marks() -> None:
    assert _found(UNFINISHED) == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    assert _found(MACHINE_PATH, outside="docker/") == []


def test_no_file_names_a_package_registry() -> None:
    assert _found(REGISTRY) == []
    assert "://" not in (ROOT / "requirements.lock").read_text()
