"""An error says what is wrong, and what to do."""

from __future__ import annotations

import ast

from headrace.contracts import errors
from tests.architecture.source import SHIPPED, python_files, tree_of


def _error_classes() -> dict[str, ast.ClassDef]:
    """Every error below the root, wherever it is defined."""
    nodes = (node for file in python_files(*SHIPPED) for node in ast.walk(tree_of(file)))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    found: dict[str, ast.ClassDef] = {}
    grown = True
    while grown:
        known = {"HeadraceError", *found}
        more = {node.name: node for node in classes if _bases(node) & known}
        grown = more.keys() > found.keys()
        found = more
    return found


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def test_every_error_says_what_to_do() -> None:
    silent = [
        name
        for name, node in _error_classes().items()
        if not name.startswith("_") and "**Do:**" not in (ast.get_docstring(node) or "")
    ]
    assert silent == []


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    public = [name for name in _error_classes() if not name.startswith("_")]
    assert [name for name in public if name not in drawn] == []
