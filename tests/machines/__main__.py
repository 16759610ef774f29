"""`python -m tests.machines pythons`: one kind of machine that users have, or another."""

from __future__ import annotations

import sys

from tests.machines.bare import run_bare
from tests.machines.libraries import run_libraries
from tests.machines.pythons import run_pythons
from tests.machines.sparks import run_sparks
from tests.machines.whole import run_whole

KINDS = {
    "pythons": run_pythons,
    "libraries": run_libraries,
    "sparks": run_sparks,
    "bare": run_bare,
    "whole": run_whole,
}

if __name__ == "__main__":
    kind, *words = sys.argv[1:] or [""]
    if kind not in KINDS:
        sys.exit(f"usage: python -m tests.machines {'|'.join(KINDS)} ...")
    sys.exit(not KINDS[kind](words))
