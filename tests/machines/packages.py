"""Install the packages of a lock with pip, and say how many of them are there.

python tests/machines/packages.py LOCK

pip itself says some hundred lines; they are shown only if it fails.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--require-hashes")
_EVERY = 20


def main(lock: str) -> int:
    """Return pip's exit code."""
    packages = sum("==" in line for line in Path(lock).read_text().splitlines())
    with subprocess.Popen(
        [*_PIP, "--requirement", lock],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        said = list(watched(pip.stdout, packages))
    if pip.returncode != 0:
        sys.stderr.writelines(said)
    return pip.returncode


def watched(lines: Iterable[str], packages: int) -> Iterable[str]:
    """Pass on what pip says, and print how far it is."""
    there = 0
    for line in lines:
        if line.startswith(("Collecting ", "Ignoring ")):
            there += 1
            if there % _EVERY == 0:
                print(f"  {there} of {packages} packages are here", flush=True)
        if line.startswith("Installing "):
            print("  installing them, which may take a minute", flush=True)
        yield line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
