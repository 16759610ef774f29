"""How commands are found, and what happens where one cannot be."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, version

import pytest

from headrace.contracts.errors import YourFault
from headrace.services.cli import main
from headrace.services.cli.app import GROUP, OWN_COMMANDS, find_commands, load_command
from headrace.services.cli.plan import plan


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    """The exit code of the command with these words."""
    monkeypatch.setattr(sys, "argv", ["headrace", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def test_our_own_commands_can_be_loaded() -> None:
    commands = find_commands()
    assert OWN_COMMANDS.keys() <= commands.keys()
    assert load_command(commands["plan"]) is plan


@pytest.mark.parametrize(
    ("module", "requirement"),
    [
        ("headrace.services.tests_only", "'headrace[sidecar]'"),
        ("headrace.spark_jobs.tests_only", "'headrace[spark]'"),
        ("tests_only", "a_library_that_is_not_there"),
    ],
)
def test_a_missing_library_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, module: str, requirement: str
) -> None:
    def absent(_self: EntryPoint) -> None:
        raise ModuleNotFoundError(name="a_library_that_is_not_there.inner")

    monkeypatch.setattr(EntryPoint, "load", absent)
    command = load_command(EntryPoint("spin", f"{module}:spin", GROUP))
    with pytest.raises(YourFault) as error:
        command("--any", "words")
    assert str(error.value) == (
        "`headrace spin` needs a_library_that_is_not_there, which is not installed;"
        f" run: pip install {requirement}"
    )


def test_a_missing_extra_ends_the_command_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(_self: EntryPoint) -> None:
        raise ModuleNotFoundError(name="faust")

    monkeypatch.setattr(EntryPoint, "load", absent)
    assert called(monkeypatch, "plan", "--any", "words") == 2
    sentence = "`headrace plan` needs faust, which is not installed"
    assert capsys.readouterr().err == f"{sentence}; run: pip install 'headrace[sidecar]'\n"


def test_a_module_of_ours_that_is_missing_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError):
        load_command(EntryPoint("spin", "headrace.services.cli.absent:spin", GROUP))


def test_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "--help") == 0
    assert "Check a pipeline file" in capsys.readouterr().out


def test_the_version_loads_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(EntryPoint, "load")
    assert called(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == version("headrace")


@pytest.mark.parametrize(
    "words",
    [
        ("plna",),
        ("plan",),
        ("plan", "a", "b"),
        ("plan", "--no", "a"),
        ("plan", "a", "--records-per-second", "-1"),
        ("plan", "a", "--records-per-second", "nan"),
        ("plan", "a", "--records-per-second", "9" * 400),
    ],
)
def test_words_that_make_no_sense(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert called(monkeypatch, *words) == 2
    assert "Error" in capsys.readouterr().err
