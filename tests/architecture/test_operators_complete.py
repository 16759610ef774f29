"""Every operator that a pipeline can name has all that an operator must have."""

from __future__ import annotations

import ast

import pytest

from headrace.contracts.policies import OPERATOR_KINDS
from tests.architecture.source import ROOT, tree_of
from tests.bench.operators import BENCHES

OPERATORS = sorted(OPERATOR_KINDS)
every_operator = pytest.mark.parametrize("name", OPERATORS)


def _functions(path: str) -> list[str]:
    tree = tree_of(ROOT / path)
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


@every_operator
def test_it_has_a_module(name: str) -> None:
    assert (ROOT / f"services/operators/{name}.py").is_file()


@every_operator
def test_it_has_a_page_with_scenarios(name: str) -> None:
    page = ROOT / f"contracts/semantics/{name}.md"
    assert "```" in page.read_text("utf-8"), f"{page.name} shows no scenario"


@every_operator
def test_it_has_an_oracle(name: str) -> None:
    public = [one for one in _functions(f"tests/oracles/{name}.py") if not one.startswith("_")]
    assert public != []


@every_operator
def test_it_has_a_property_test(name: str) -> None:
    names = _functions(f"tests/properties/test_{name}.py")
    assert [one for one in names if one.startswith("test_")] != []


def test_they_have_benches_and_no_bench_is_left_over() -> None:
    assert sorted(BENCHES) == OPERATORS
