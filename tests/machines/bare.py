"""README's commands, on a Debian 12 that has nothing but make and Python.

It is debootstrap's smallest Debian with make, python3 and python3-venv, a checkout in it, and one
of README's two commands. Root installs what it lacks; for everybody else Java and Maven are there.
One sentence names the package that is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from headrace.services.broker.jars import cache_folder
from tests.machines.steps import NOT_RUN, ROOT, Step, run, show_table

_PACKAGES = "make,python3,python3-venv"
_WITH_JAVA = ("openjdk-17-jre-headless", "maven")
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
_INSTALL = """
set -e
root=$1; shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get update
chroot "$root" apt-get install --yes --no-install-recommends "$@"
chroot "$root" update-ca-certificates
"""
_WAYS_OUT = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""Files of this machine that say how registries are reached."""
_OWN_AUTHORITIES = Path("usr/local/share/ca-certificates")
_NOT_WRITTEN = (".venv*", ".git", ".*_cache", ".hypothesis", "__pycache__", "build", "dist")


class Machine(NamedTuple):
    """A Debian, and what is peculiar about it."""

    told: str
    circumstances: tuple[str, ...] = ()
    command: str = "demo"
    has_java: bool = True
    lacks: str = ""
    """The package that the last line must name, where the command cannot work."""


MACHINES = {
    "root": Machine("root, nothing installed", has_java=False),
    "root-test": Machine("root, nothing installed", command="test", has_java=False),
    "user": Machine("an ordinary user", ("user",)),
    "space": Machine("a folder with spaces and an umlaut", ("user", "space")),
    "noexec": Machine("a noexec folder for temporary files", ("user", "noexec")),
    "home": Machine("a home that is read-only, and HEADRACE_CACHE elsewhere", ("user", "home")),
    "files": Machine("a soft limit of 1,024 open files", ("user", "files")),
    "lang": Machine("LANG=C and TZ=Asia/Kolkata", ("user", "lang")),
    "core": Machine("one core", ("user", "core")),
    "all": Machine(
        "all of these at once", ("user", "space", "noexec", "home", "files", "lang", "core")
    ),
    "no-python": Machine("no Python", ("no-python",), has_java=False, lacks="python3-venv"),
    "no-venv": Machine("no python3-venv", ("no-venv",), has_java=False, lacks="python3-venv"),
    "no-cache": Machine(
        "a home that is read-only", ("user", "home", "no-cache"), lacks="HEADRACE_CACHE"
    ),
    "no-java": Machine(
        "an ordinary user without Java", ("user",), has_java=False, lacks="openjdk-17-jre-headless"
    ),
}


def run_bare(arguments: list[str]) -> bool:
    """Run as the command line says; whether all is well."""
    parser = argparse.ArgumentParser(prog="tests.machines bare", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="MACHINE", help=", ".join(MACHINES))
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("only root may make a Debian inside of this one")
    chosen = options.only or list(MACHINES)
    if unknown := set(chosen) - set(MACHINES):
        parser.error(f"no machine is called {', '.join(sorted(unknown))}")
    ran = {name: _run_on(name, MACHINES[name]) for name in chosen}
    rows = [
        (machine.told, f"`make {machine.command}`", _outcome(machine, ran.get(name)))
        for name, machine in MACHINES.items()
    ]
    head = ("what is peculiar", "command", "outcome")
    show_table(head, rows)
    failed = [name for name, step in ran.items() if not step.is_well]
    print(f"Bare Debian: {len(ran) - len(failed)} of {len(ran)} work {failed or ''}", flush=True)
    return not failed


def _run_on(name: str, machine: Machine) -> Step:
    folder = cache_folder() / "bare"
    with TemporaryDirectory(dir=_made(folder), prefix="machine-") as temporary:
        root = Path(temporary, "root")
        _copied(_debian(folder, has_java=machine.has_java), root)
        ignored = shutil.ignore_patterns(*_NOT_WRITTEN)
        shutil.copytree(ROOT, root / "srv" / "checkout", ignore=ignored, symlinks=True)
        words: list[str | Path] = [*_APART, "bash", Path(__file__).with_suffix(".sh")]
        words += [root, folder / "fetched", machine.command, *machine.circumstances]
        step = run(words, ROOT / ".venvs" / f"bare-{name}.log")
    if machine.lacks:
        step = step._replace(is_well=not step.is_well and machine.lacks in step.says)
    print(f"Bare Debian, {name}: {step.cell} ({step.took_s:.0f} s)", flush=True)
    return step


def _outcome(machine: Machine, step: Step | None) -> str:
    if step is None:
        return NOT_RUN
    if machine.command == "test" or not step.is_well:
        return step.cell
    return f"a sentence that names {machine.lacks}" if machine.lacks else "works"


def _debian(folder: Path, *, has_java: bool) -> Path:
    """A root that is made once."""
    root = folder / ("java" if has_java else "empty")
    if root.is_dir():
        return root
    # It appears whole or not at all.
    with TemporaryDirectory(dir=folder, prefix="making-") as temporary:
        made = Path(temporary, "root")
        if has_java:
            _copied(_debian(folder, has_java=False), made)
            _install(made, *_WITH_JAVA)
        else:
            if shutil.which("debootstrap") is None:
                _call(ROOT / "docker" / "install.sh", "debootstrap")
            _call("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", made)
            _show_ways_out(made)
        made.rename(root)
    return root


def _show_ways_out(root: Path) -> None:
    for file in _WAYS_OUT:
        if Path("/", file).exists():
            _made((root / file).parent)
            shutil.copy(Path("/", file), root / file)
    if Path("/", _OWN_AUTHORITIES).is_dir():
        shutil.copytree(Path("/", _OWN_AUTHORITIES), root / _OWN_AUTHORITIES, dirs_exist_ok=True)
        # Java takes them from there when it is installed.
        _install(root, "ca-certificates")


def _install(root: Path, *packages: str) -> None:
    _call(*_APART, "bash", "-c", _INSTALL, "bash", root, *packages)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copied(root: Path, to: Path) -> None:
    _call("cp", "--archive", "--reflink=auto", root, to)


def _call(*words: str | Path) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
