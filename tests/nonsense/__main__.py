"""Nonsense in any number.

python -m tests.nonsense files --count 1000 --seed 1
python -m tests.nonsense records --count 1000000 --seed 1 2 3 4
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.nonsense import files, streams


def main() -> int:
    """Run what the arguments ask for, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("files", "records"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="records take several")
    arguments = parser.parse_args()
    if arguments.what == "records":
        found = streams.report(arguments.seed, arguments.count)
    else:
        with TemporaryDirectory() as folder:
            found = files.report(arguments.seed[0], arguments.count, Path(folder))
    print(found)
    return 0 if found.splitlines()[0].endswith(": 0 complaints") else 1


if __name__ == "__main__":
    sys.exit(main())
