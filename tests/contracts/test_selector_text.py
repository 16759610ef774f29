"""Texts that are no selector and no comparison: one sentence each."""

from __future__ import annotations

import pytest

from headrace.contracts.errors import SelectorInvalid
from headrace.contracts.selector_text import parse_selector, parse_where


@pytest.mark.parametrize(
    "text",
    [
        "", "keys", "value.", "value..a", "header", "header.", "id", "module:", ":function",
        "a b:c", "key ",
    ],
)  # fmt: skip
def test_not_selectors(text: str) -> None:
    with pytest.raises(SelectorInvalid, match="selects nothing"):
        parse_selector(text)


def test_a_selector_names_one_place() -> None:
    with pytest.raises(SelectorInvalid, match="names two places in a record"):
        parse_selector("value.a and value.b")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "is not a comparison"),
        ("value.n", "is not a comparison"),
        ("value.n = 3", "`value.n = 3`: `=` is no sign; write `==`"),
        ('value.n = "a > b"', "`=` is no sign; write `==`"),
        ("value.n <> 3", "`value.n <> 3`: `<>` is no sign; write `!=`"),
        ("value.n is not null", "`value.n is not null`: write `!= null`"),
        ("value is None", "`value is None`: write `== null`"),
        ("value.n > 3 AND value.n < 5", "makes one comparison; write a filter for each that must"),
        ("value.n > 3 || value.n < 1", "makes one comparison"),
        ("value.n is not null and value.m == 1", "makes one comparison"),
        ("value.n is null or not header.m == 1", "makes one comparison"),
        ("not value.n == 3", "makes one comparison"),
        ("value.in == three", "`three` is not a JSON literal"),
        ('value.n == "a and b', "is not a JSON literal"),
        ("value.n == three", "is not a JSON literal"),
        ("value.n == 'three'", "is not a JSON literal"),
        ("value.n == NaN", "is not a JSON literal"),
        ("value.n == [1]", "is a list or an object"),
        ("value.n == 1e999", "is not a JSON literal"),
        ("value.n =< 3", "`=<` is no sign; write `<=`"),
        ("value.n => 3", "`=>` is no sign; write `>=`"),
        ("value.n = == 3", "`===` is no sign; write `==`"),
        ("value.n < null", "has no order"),
        ("value.n >= true", "has no order"),
        ("header.h == true", "in double quotes"),
        ("module:function == 3", "say yes or no"),
        ("amount >= 3", "selects nothing"),
    ],
)
def test_not_comparisons(where: str, message: str) -> None:
    with pytest.raises(SelectorInvalid, match=message):
        parse_where(where)
