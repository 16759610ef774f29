"""A folder or file that cannot be read or written ends a command in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from headrace.contracts.errors import ScenarioInvalid, SettingsInvalid, StateUnavailable
from headrace.services.admin.reset import folder_of
from headrace.services.broker import embedded
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.java import Java
from headrace.services.broker.storage import kept_checkpoint
from headrace.services.cli.demo import command
from headrace.services.cli.inspect import inspect
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.cli.scenarios import run_scenarios
from headrace.services.settings import read_settings
from tests.cli.test_signals import file

__all__ = ["file"]
NO_FOLDER = Path("x" * 300)
"""A name that no file system takes, whoever asks."""


def test_an_inspected_folder_that_cannot_be_read_is_named(file: Path) -> None:
    with pytest.raises(StateUnavailable, match=r"^the state folder x+/.* \(File name too long\)"):
        inspect(file, state_folder=NO_FOLDER)


def test_a_reset_folder_that_cannot_be_read_is_named(file: Path) -> None:
    settings = read_settings(state_folder=NO_FOLDER)
    with pytest.raises(StateUnavailable, match=r"^the state folder x+/.* \(File name too long\)"):
        folder_of(load_pipeline(file), settings)


def test_a_reset_deletes_no_folder_with_files_of_others(file: Path, tmp_path: Path) -> None:
    project = tmp_path / load_pipeline(file).pipeline
    project.mkdir()
    (project / "lock").touch()
    (project / "functions.py").write_text("def is_wanted(record): ...")
    with pytest.raises(SettingsInvalid) as refused:
        folder_of(load_pipeline(file), read_settings(state_folder=tmp_path))
    assert str(refused.value) == (
        f"the folder {project} has `functions.py`, which is not of headrace, so this is no folder"
        " of state; name the right one with --state-folder"
    )


@pytest.mark.parametrize("left", [".deleted/state/0", "state/0", "state/1.aside", "an-id/0"])
def test_a_reset_knows_a_folder_of_state(file: Path, tmp_path: Path, left: str) -> None:
    folder = tmp_path / load_pipeline(file).pipeline
    (folder / left).mkdir(parents=True)
    (folder / "client").touch()
    assert folder_of(load_pipeline(file), read_settings(state_folder=tmp_path)) == folder


def test_a_scenario_whose_folder_cannot_be_read_is_named() -> None:
    with pytest.raises(ScenarioInvalid, match=r"^x+: cannot be read \(File name too long\)"):
        run_scenarios(NO_FOLDER)


def test_a_page_that_cannot_be_written_is_told_before_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: object) -> NoReturn:
        pytest.fail("the demo begins")

    monkeypatch.setattr(command, "broker", begun)
    page = tmp_path / "absent" / "page.html"
    with pytest.raises(SettingsInvalid) as refused:
        command.demo(page_file=page)
    assert str(refused.value) == (
        f"`{page}` cannot be written (No such file or directory); name another file with"
        " --page-file"
    )


@pytest.fixture
def _prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / "jars"
    kept_checkpoint(jars).touch()
    monkeypatch.setattr(embedded, "find_java", lambda: Java("java", "17"))
    monkeypatch.setattr(embedded, "kafka_jars", lambda **_: jars)


@pytest.mark.usefixtures("_prepared")
def test_a_broker_s_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(SettingsInvalid) as refused:
        EmbeddedBroker(taken).prepare()
    assert str(refused.value) == (
        f"{taken}/broker-1 cannot be written to (Not a directory); name another folder with --data"
    )


@pytest.mark.usefixtures("_prepared")
def test_a_broker_s_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="has a comma, at which Kafka would split it"):
        EmbeddedBroker(tmp_path / "a,b").prepare()
    assert not (tmp_path / "a,b").exists()
