"""The words of `headrace replay-dead`; `tests/runtime/test_replay_dead.py` has what it does."""

from __future__ import annotations

import sys

import pytest

from headrace.contracts.decision import Reason
from headrace.services.cli import main


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
