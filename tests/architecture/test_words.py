"""One idea has one word, in code, messages and pages: the glossary's. These are the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.source import ROOT, SHIPPED, path_of, python_files, tree_of

CODE, MESSAGES, PAGES = "code", "messages", "pages"
EVERYWHERE = (CODE, MESSAGES, PAGES)


class Word(NamedTuple):
    """A word that is not used, and what to write instead."""

    pattern: str
    instead: str
    where: tuple[str, ...] = EVERYWHERE
    folder: str = ""
    """The folder in whose code it is not used; all if empty."""


FORBIDDEN = (
    Word(r"dlq|dead letter queue|poison(ed)?( pill)?", "dead, dead-letter topic"),
    Word(r"cleansed|sanitized|purified", "cleaned"),
    Word(r"evict(s|ed)?|ejected|flushed out", "released, dropped"),
    Word(r"tardy|overdue|outdated", "late"),
    Word(r"grace period|allowed lateness", "grace"),
    Word(r"sub topolog(y|ies)|subtopolog(y|ies)", "hop"),
    Word(r"savepoints?", "checkpoint"),
    Word(r"shards?", "partition, task"),
    Word(r"bookmarks?|cursors?", "offset, position"),
    Word(r"upstream|downstream", "before, behind"),
    Word(r"payloads?", "value"),
    Word(r"dedup(e|es|ed)?|deduplicator", "deduplicate"),
    Word(r"hot (standby|replica)s?|warmups?|warm ups", "standby, learner"),
    # Pages may compare us with systems that have these words.
    Word(r"watermarks?|low water", "progress", (CODE, MESSAGES)),
    Word(r"ttl|time to live", "retention, interval", (CODE, MESSAGES)),
    Word(r"event time stamps?", "timestamp"),
    # These once named the ideas of Spark's half.
    Word(r"(un)?heard|hears?|hearing|hearers?", "progress", (CODE, MESSAGES), "spark_jobs"),
    Word(r"told|tells?|reach(ed|es)?", "progress, position", (CODE, MESSAGES), "spark_jobs"),
    Word(r"turns?|opened", "schedule, task", (CODE, MESSAGES), "spark_jobs"),
    # In code it is what is done to files and locks, too.
    Word(r"(let|lets|letting) go( of)?", "release", (MESSAGES, PAGES)),
)
OF_OTHERS = (
    "get_watermark_offsets",
    "numRowsDroppedByWatermark",
    "withWatermark",
    "withGracePeriod",
    "log.cleaner.dedupe.buffer.size",
    "max_warmup_replicas",
    "MAX_WARMUP_REPLICAS",
    "which KIP-441 calls warm-ups",
)
"""Kafka's and Spark's own names; a setting has the name that Kafka Streams gave it."""
OF_STORED_STATE = {"reached", "reached:", "unheard", "unheard:"}
"""Names in checkpoints, which stay as they were written."""
OF_PYTHON = {"tell"}
"""A method of files."""
GENERATED = ("contracts/schemas/pipeline.schema.json", "services/observe/METRICS.md")
_TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FORBIDDEN = tuple(
    (re.compile(rf"\b({word.pattern})\b", re.IGNORECASE), word) for word in FORBIDDEN
)


def forbidden(text: str, where: str, path: str = "") -> list[str]:
    """The words of a text that are not used there, each with the right one."""
    if text in OF_STORED_STATE | OF_PYTHON:
        return []
    for name in OF_OTHERS:
        text = text.replace(name, "")
    words = re.sub(r"[\W_]+", " ", _HUMP.sub(" ", text))
    return [
        f"`{match[0]}` is written `{word.instead}`"
        for pattern, word in _FORBIDDEN
        if where in word.where and path.startswith(word.folder)
        for match in pattern.finditer(words)
    ]


def _pages() -> list[Path]:
    folders = (ROOT / "docs").rglob("*.md"), (ROOT / "contracts" / "semantics").glob("*.md")
    found = [ROOT / name for name in (*_TOP, *GENERATED)]
    return found + [page for folder in folders for page in sorted(folder)]


def _prose(page: Path) -> str:
    """A page's text, without what was said in earlier versions."""
    text = page.read_text("utf-8")
    if page.name != "CHANGELOG.md":
        return text
    return text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]


def _names(file: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(file)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case _:
                pass
    yield file.stem


def _messages(file: Path) -> Iterator[str]:
    """Yield the texts of a program that a user may see; docstrings are left out."""
    tree = tree_of(file)
    explained = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in explained:
            yield str(node.value)


def test_code_and_messages_have_one_word_for_one_idea() -> None:
    found = {
        f"{path_of(file)}: {text[:60]}: {problem}"
        for file in python_files(*SHIPPED)
        for texts, where in ((_names(file), CODE), (_messages(file), MESSAGES))
        for text in set(texts)
        for problem in forbidden(text, where, path_of(file))
    }
    assert sorted(found) == []


@pytest.mark.parametrize("page", _pages(), ids=path_of)
def test_pages_have_one_word_for_one_idea(page: Path) -> None:
    assert forbidden(_prose(page), PAGES) == []


def test_forbidden_words_are_found() -> None:
    assert forbidden("the buffer_is_evicted", CODE) == ["`evicted` is written `released, dropped`"]
    assert forbidden("class LowWater", CODE) == ["`Low Water` is written `progress`"]
    assert forbidden("a grace\n  period", PAGES) == ["`grace period` is written `grace`"]
    assert forbidden("frame.withWatermark(...)", CODE) == []
    assert forbidden("_heard_by", CODE, "spark_jobs/x.py") == ["`heard` is written `progress`"]
    assert forbidden("_heard_by", CODE, "services/x.py") == []
    assert forbidden("reached:", MESSAGES, "spark_jobs/x.py") == []


def test_each_forbidden_word_names_its_replacement() -> None:
    known = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## Glossary")[2]
    operators = {file.stem for file in (ROOT / "services" / "operators").glob("*.py")}
    plain = {"before", "behind", "interval", "retention", "release", "schedule"}
    instead = {one for word in FORBIDDEN for one in word.instead.split(", ")}
    assert [one for one in instead - plain - operators if one not in known] == []
