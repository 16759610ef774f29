"""Modules that a file may name, each of no use in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_VALUES = """
number, text, binary = 1, "x", b""

def nullary(): return True
async def coroutine(record): return True
def generator(record): yield True

class half:
    initial = add = None

class Raising:
    def __init__(self): raise RuntimeError("no")
    def initial(self): return None
    def add(self, aggregate, record): return None
    def merge(self, one, other): return None

class Needy(Raising):
    def __init__(self, more): pass
"""
_ATTRIBUTES = """
def __getattr__(name): raise RuntimeError("no " + name)
"""
_SPEECHLESS = """
class Speechless(Exception):
    def __str__(self): raise RuntimeError("not even that")
raise Speechless
"""
_LEAVES = """
class Leaves(BaseException): pass
raise Leaves("for good")
"""
_RECURSION = """
def f(record): return f(record)
f(None)
"""
_JOB = """
Config = Row = VALUES = transform = None
"""
MODULES: Mapping[str, bytes] = {
    "raises": b"raise ValueError('no')",
    "exits": b"import sys; sys.exit(0)",
    "syntax": b"def f(:\n",
    "multiline": b"raise ValueError('one\\ntwo\\n\\x1b[2Jthree ' + 'x' * 10000)",
    "values": _VALUES.encode(),
    "attributes": _ATTRIBUTES.encode(),
    "speechless": _SPEECHLESS.encode(),
    "leaves": _LEAVES.encode(),
    "recursion": _RECURSION.encode(),
    "needs": b"import nonsense_nowhere",
    "deep": b"x = " + b"(" * 5_000,
    "bytes": b"\xff\xfe\0",
    "job": _JOB.encode(),
}


def write_modules(folder: Path) -> None:
    """Put them where headrace looks for modules of a user's: the folder it was started in."""
    for name, text in MODULES.items():
        (folder / f"nonsense_{name}.py").write_bytes(text)
