"""The words of `headrace replay-dead`; `tests/runtime/test_replay_dead.py` has what it does."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from headrace.contracts.dead_letter import DeadLetter, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.admin.replay_dead import Choice, Fate, Judge, Tally
from headrace.services.admin.replay_place import Place
from headrace.services.cli import main, replay_dead

SERVICES = Path(replay_dead.__file__).parent.parent
OF_LATE_RECORDS = {Reason.PAST_GRACE}
"""Records leave by the side with these reasons as well, and are late, not dead."""


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[object, str]:
    """Return the exit code and the words of the command."""
    monkeypatch.setattr(sys, "argv", ["headrace", "replay-dead", *words])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return stopped.value.code, captured.out + captured.err


@pytest.mark.parametrize("reason", [Reason.DUPLICATE, Reason.PAST_GRACE, "nonsense"])
def test_a_reason_that_no_dead_letter_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    code, words = said(monkeypatch, capsys, "clicks.yaml", "--reason", reason)
    assert code == 2
    assert f'Invalid value "{reason}" for --reason.' in words


def test_the_help_names_the_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = said(monkeypatch, capsys, "--help")
    assert code == 0
    assert "undecodable, failed, too-large, future-timestamp" in " ".join(words.split())


def reasons_of_asides() -> set[Reason]:
    """Return the reasons with which code in `services` puts records aside."""
    texts = [file.read_text() for file in SERVICES.rglob("*.py")]
    trees = [ast.parse(text) for text in texts if "Aside" in text or "tuple[Reason, str]" in text]
    nodes = [node for tree in trees for node in ast.walk(tree) if _puts_aside(node)]
    return {Reason[name] for node in nodes for name in _reasons_in(node)}


def _puts_aside(node: ast.AST) -> bool:
    """Return whether code makes a record that leaves by the side, or says why one must."""
    match node:
        case ast.Call(func=ast.Name("Aside") | ast.Attribute(attr="_replace")):
            return True
        case ast.FunctionDef(returns=ast.expr() as returned):
            return "tuple[Reason, str]" in ast.unparse(returned)
        case _:
            return False


def _reasons_in(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name("Reason"), attr=name):
                yield name
            case _:
                pass


def test_the_command_knows_every_reason_of_a_dead_letter() -> None:
    choices, _ = get_args(get_type_hints(replay_dead.replay_dead)["reason"])
    known = {Reason(name) for name in get_args(choices)}
    assert known == reasons_of_asides() - OF_LATE_RECORDS


@pytest.mark.parametrize("makes", ["distinct", "aggregate"])
@pytest.mark.parametrize(("operator", "fate"), [("first", Fate.BACK), ("last", Fate.MADE)])
def test_a_record_with_a_window_in_its_key_is_not_put_back(
    makes: str, operator: str, fate: Fate
) -> None:
    window = {"kind": "tumbling", "size": "1m", "grace": "0s"}
    options = {"window": window} | ({"function": "count"} if makes == "aggregate" else {})
    filters = [{"filter": {"where": "value.n > 1", "name": name}} for name in ("first", "last")]
    document = {
        "pipeline": "clicks",
        "source": {"topic": "clicks.raw"},
        "operators": [filters[0], {makes: options}, filters[1]],
        "sink": {"topic": "clicks.cleaned"},
    }
    judge = Judge(PipelineSpec.model_validate(document), Choice(None, 1), {"clicks.raw": 1})
    record = Record(b"a", b"{", 1, (), "clicks.raw", 0, 7)
    letter = DeadLetter(record, operator, Reason.UNDECODABLE, "it is not JSON")
    dead = record._replace(headers=dead_headers(letter), topic="clicks.cleaned.dead", offset=0)
    tally: Tally = Counter()
    judge.divide([dead], Place(0, 1, {}), tally)
    assert tally == {(fate, "undecodable"): 1}
