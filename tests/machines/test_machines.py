"""The parts of the runs on other machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import project
from tests.machines.interpreters import Interpreter, in_order, interpreters, missing
from tests.machines.libraries import lowest
from tests.machines.packages import main, watched
from tests.machines.steps import run


def _named(*names: str) -> list[Interpreter]:
    found = []
    for name in names:
        major, minor, micro = map(int, name.split("."))
        found.append(Interpreter((major, minor, micro), Path(f"python{name}"), "nobody's"))
    return found


def test_the_python_that_runs_this_is_found() -> None:
    assert sys.version_info[:3] in {one.version for one in interpreters()}


def test_the_ends_of_the_range_come_first_and_a_minor_once_more_last() -> None:
    found = _named("3.11.2", "3.11.7", "3.12.1", "3.13.0", "3.13.1")
    names = [one.name for one in in_order(found)]
    assert names == ["3.11.2", "3.13.1", "3.12.1", "3.11.7", "3.13.0"]


def test_a_minor_that_is_not_here_is_named() -> None:
    assert missing(_named("3.11.2", "3.11.7")) == ["3.12", "3.13"]


def test_a_folder_for_temporary_files_without_room_for_sockets_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", __file__],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"ERROR: TMPDIR is `{folder}`, whose name is too long for sockets" in done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR


def test_every_library_that_we_ship_with_has_a_lowest_version() -> None:
    stated = project()["project"]
    extras = stated["optional-dependencies"]
    asked = [*stated["dependencies"], *extras["sidecar"], *extras["spark"]]
    assert len(list(lowest(asked))) == len(asked)
    assert list(lowest(["orjson>=3.10,<4", "aiokafka==0.14.0"])) == [
        "orjson==3.10",
        "aiokafka==0.14.0",
    ]


def test_a_step_that_fails_is_told_by_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import sys; print('Java is missing'); print('make: *** Error 1'); sys.exit(2)"
    step = run([sys.executable, "-c", program], tmp_path / "log")
    assert step.cell == "**failed:** Java is missing"
    assert "Java is missing" in capsys.readouterr().out


def test_pips_hundred_lines_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    said = [*(f"Collecting package-{number}\n" for number in range(45)), "Installing collected\n"]
    assert list(watched(said, 45)) == said
    assert capsys.readouterr().out.splitlines() == [
        "  20 of 45 packages are here",
        "  40 of 45 packages are here",
        "  installing them, which may take a minute",
    ]


def test_a_package_that_is_not_there_is_told_by_pip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.write_text(f"nothing-of-this-name==1.0 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert main(str(lock)) == 1
    assert "No matching distribution found for nothing-of-this-name" in capsys.readouterr().err
