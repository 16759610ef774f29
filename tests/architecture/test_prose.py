"""A sentence says who does what: subject first, and not a riddle about its subject."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.architecture.source import ROOT, path_of, python_files, tree_of, written_files

_RIDDLE = re.compile(
    r"(Who(se|ever)?|What(ever)?|Whichever|Nobody|Nothing|None of|That which)\b(?!'s )"
    r"|It is (told|said|asked|known|shown|named)\b"
)
_MAY_BE_RIDDLE = re.compile(r"#.*\b(Who|What|Which|Nobody|Nothing|None|That|It)")
"""A line of a comment in which a riddle can begin. Most modules have none, and tokens take long."""
_SENTENCE_ENDS = re.compile(r"(?<=[.:;!?])\s+(?=[A-Z`*])")
_NAME = re.compile(r"test_(who|whoever|whose|what|whatever|whichever|nobody|nothing|none)_")
_MARKUP = "-*#>| "


def riddles_in(text: str) -> list[str]:
    """Return the sentences of a text that begin with a pronoun in place of their subject."""
    paragraphs = (" ".join(one.split()) for one in re.split(r"\n\s*\n", text))
    sentences = (one.strip(_MARKUP) for each in paragraphs for one in _SENTENCE_ENDS.split(each))
    return [one for one in sentences if _RIDDLE.match(one) and not one.endswith("?")]


def _texts_of_module(file: Path) -> Iterator[str]:
    """Yield the texts that a module has for its readers: strings as statements, and comments."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    text = file.read_text("utf-8")
    if not _MAY_BE_RIDDLE.search(text):
        return
    comments = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    # Comments in consecutive lines are one text.
    for _, block in groupby(enumerate(comments), lambda one: one[1].start[0] - one[0]):
        yield " ".join(token.string.lstrip("# ") for _, token in block)


def _text_of_page(file: Path) -> str:
    return re.sub(r"```.*?```", "", file.read_text("utf-8"), flags=re.DOTALL)


def test_riddles_are_set_apart() -> None:
    text = "It works. What leaves is written; nobody reads it.\n\nWho is it? What's new here."
    assert riddles_in(text) == ["What leaves is written; nobody reads it."]
    assert riddles_in("It is told so. It is a row. Nothing: it is small.") == [
        "It is told so.",
        "Nothing: it is small.",
    ]


def test_no_sentence_is_a_riddle() -> None:
    modules = python_files("contracts", "services", "spark_jobs", "src", "tests")
    # Results are written by programs.
    pages = [
        file for file in written_files() if file.suffix == ".md" and file.parent.name != "results"
    ]
    found = [
        f"{path_of(file)}: {riddle}"
        for file in (*modules, *pages)
        for text in (_texts_of_module(file) if file.suffix == ".py" else [_text_of_page(file)])
        for riddle in riddles_in(text)
    ]
    assert not found, "say who does what:\n" + "\n".join(found)


def test_names_of_tests_begin_with_their_subject() -> None:
    files = (ROOT / "tests").rglob("test_*.py")
    names = [
        node.name
        for file in files
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _NAME.match(node.name)
    ]
    assert names == []
