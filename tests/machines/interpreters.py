"""The Pythons of this machine that headrace may run on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MINORS = ((3, 11), (3, 12), (3, 13))
_NAMES = ("python3", *(f"python{major}.{minor}" for major, minor in MINORS))
_ASK = "import ensurepip, sys, venv; print(*sys.version_info[:3])"


class Interpreter(NamedTuple):
    """A Python that starts, and can make an environment."""

    version: tuple[int, int, int]
    path: Path
    whose: str

    @property
    def name(self) -> str:
        """3.12.1 and so on."""
        return ".".join(map(str, self.version))

    @property
    def minor(self) -> tuple[int, int]:
        """The version decides about libraries and types."""
        return self.version[:2]


def interpreters() -> list[Interpreter]:
    """Each version that is here, once; the oldest first."""
    found: dict[tuple[int, int, int], Interpreter] = {}
    for whose, path in _candidates():
        version = _version_of(path)
        if version is not None and version[:2] in MINORS:
            found.setdefault(version, Interpreter(version, path, whose))
    return [found[version] for version in sorted(found)]


def in_order(found: list[Interpreter]) -> list[Interpreter]:
    """The oldest and the newest first, then one of each minor, then the others."""
    ends = [*found[:1], *found[-1:]]
    between = {one.minor: one for one in found if one.minor not in {end.minor for end in ends}}
    return list(dict.fromkeys([*ends, *between.values(), *found]))


def missing(found: list[Interpreter]) -> list[str]:
    """The minors that are not here."""
    here = {one.minor for one in found}
    return [f"{major}.{minor}" for major, minor in MINORS if (major, minor) not in here]


def _candidates() -> Iterator[tuple[str, Path]]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [
        ("the system's", Path("/usr/bin")),
        *(("pyenv's", folder / "bin") for folder in sorted(pyenv.glob("versions/*"))),
        *(("on PATH", Path(folder)) for folder in os.environ["PATH"].split(os.pathsep) if folder),
    ]
    for whose, folder in folders:
        for name in _NAMES:
            if os.access(folder / name, os.X_OK):
                yield whose, folder / name


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """None where it does not start, as pyenv's stand-ins, or lacks what an environment takes."""
    done = subprocess.run(
        [path, "-I", "-c", _ASK], capture_output=True, text=True, cwd="/", check=False
    )
    if done.returncode != 0:
        return None
    major, minor, micro = map(int, done.stdout.split())
    return major, minor, micro
