"""The wheel has everything that is needed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.architecture.source import ROOT, SHIPPED, imported_path, project, written_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    done = subprocess.run(
        [*build, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_it_carries_every_file_of_the_three_packages_and_no_test(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(
        imported_path(file).as_posix()
        for file in written_files()
        if file.relative_to(ROOT).parts[0] in SHIPPED
    )


def test_it_says_what_pyproject_says(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        named = {name.rpartition("/")[2]: name for name in archive.namelist()}
        metadata = archive.read(named["METADATA"]).decode()
        commands = archive.read(named["entry_points.txt"]).decode()
    stated = project()["project"]
    assert f"\nVersion: {stated['version']}\n" in metadata
    for extra in stated["optional-dependencies"]:
        assert f"\nProvides-Extra: {extra}\n" in metadata
    assert "headrace = headrace.services.cli:main" in commands
    assert "LICENSE" in named
