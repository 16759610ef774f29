"""Wrong files at random, each given to the command as a user would; what it says is judged."""

from __future__ import annotations

import io
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

from headrace.services.cli import main
from tests.nonsense import right
from tests.nonsense.faults import FAULTS
from tests.nonsense.modules import write_modules
from tests.nonsense.spoiled import FORMS, HUGE, PLACES
from tests.nonsense.written import written

_JARGON = re.compile(
    r"Traceback|Input should|Field required|[Vv]alue error|Extra inputs|pydantic|discriminator"
    r"|yaml\.org|NoneType|<class|<function|<module|object at 0x|None\b|\bdict\b|type="
    r"|instance of|codec|Errno|literal_|int\(\)|set_int_max_str_digits|could not determine"
    r"|cannot stand here"
    r"|<block|<stream|<scalar|valid (string|integer|dictionary|list)|[Rr]ecursion depth"
)
_USERS_OWN = re.compile(r"(?<=fails when imported )\(.*\)")
"""Errors of a user's own module keep their own words."""
_LINE_CHARACTERS_MAX = 500
_WRONG = 2


class Given(NamedTuple):
    """One file for the command."""

    kind: str
    """The change that was made to it."""
    command: tuple[str, ...]
    path: Path


class Said(NamedTuple):
    """The result of the command."""

    exit_code: int
    out: str
    err: str
    seconds: float


def wrong_files(seed: int, count: int, folder: Path, *, huge: bool = False) -> Iterator[Given]:
    """So many wrong files, one after the other; each is written when it is asked for."""
    rng = Random(seed)
    write_modules(folder)
    kinds = [(kind, weight) for kind, (weight, _) in FAULTS.items()]
    kinds += [(kind, 1) for kind in (*FORMS, *PLACES)]
    ways, weights = zip(*kinds, strict=True)
    chosen = rng.choices(ways, weights, k=count)
    # Each way once, whatever chance says.
    chosen[: len(ways)] = ways[:count]
    for number, kind in enumerate([*chosen, *(HUGE if huge else ())]):
        yield _wrong_file(rng, kind, folder / f"{number}.yaml")


def right_files(seed: int, count: int, folder: Path) -> Iterator[Given]:
    """So many files without fault, as editors of all kinds save them."""
    rng = Random(seed)
    for number in range(count):
        command, document = _right(rng)
        text = written(document)
        if rng.random() < 0.3:
            text = "\ufeff" + text
        if rng.random() < 0.3:
            text = text.replace("\n", "\r\n")
        path = folder / f"right-{number}.yaml"
        path.write_bytes(text.encode())
        yield Given("right", (*command, str(path)), path)


def run(given: Given, folder: Path) -> Said:
    """Give it to the command, in this process and in this folder."""
    out, err = io.StringIO(), io.StringIO()
    exit_code = 0
    begun = time.monotonic()
    with (
        chdir(folder),
        patch.object(sys, "argv", ["headrace", *given.command]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001  # what leaves the command is what is looked for
            exit_code = 1
            err.write(traceback.format_exc(limit=-1))
    return Said(exit_code, out.getvalue(), err.getvalue(), time.monotonic() - begun)


def complaints(given: Given, said: Said) -> list[str]:
    """Yield the problems with the command's words about a wrong file."""
    lines = said.err.replace(str(given.path), "FILE").splitlines()
    found = []
    if said.exit_code != _WRONG:
        found.append(f"exit code {said.exit_code}")
    if said.out:
        found.append("it wrote to the standard output")
    if len(lines) != 1:
        found.append(f"{len(lines)} sentences")
    for line in lines:
        if not re.match(r"FILE(:\d+(:\d+)?)?: .", line):
            found.append("no place")
        if _JARGON.search(_USERS_OWN.sub("", line)):
            found.append("words of a library")
        if not line.isprintable():
            found.append("characters that cannot be printed")
        if len(line) > _LINE_CHARACTERS_MAX:
            found.append(f"{len(line)} characters")
    if lines and given.kind in FAULTS and re.match(r"FILE(:\d+)?: ", lines[0]):
        found.append("neither line nor column")
    return found


def report(seed: int, count: int, folder: Path) -> str:
    """Run so many; a table of what was given, and every complaint."""
    counts: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    wrong: list[str] = []
    for given in wrong_files(seed, count, folder, huge=True):
        said = run(given, folder)
        counts[given.kind] += 1
        slowest[given.kind] = max(slowest.get(given.kind, 0.0), said.seconds)
        found = complaints(given, said)
        if found:
            shown = said.err.replace(str(folder) + os.sep, "")[:600]
            wrong.append(f"{given.kind}: {', '.join(found)}: {given.path.name[:80]}\n    {shown}")
    for given in right_files(seed, count // 5, folder):
        said = run(given, folder)
        counts[given.kind] += 1
        if said.exit_code != 0 or said.err:
            wrong.append(f"a right file, exit code {said.exit_code}: {given.path}\n    {said.err}")
    rows = [
        f"| {kind} | {counts[kind]} | {slowest.get(kind, 0.0):.2f} |" for kind in sorted(counts)
    ]
    title = f"# {sum(counts.values())} files, seed {seed}: {len(wrong)} complaints"
    table = ["| what was wrong | files | slowest, seconds |", "|---|---|---|", *rows]
    return "\n".join([title, "", *table, *wrong])


def _right(rng: Random) -> tuple[tuple[str, ...], right.Document]:
    if rng.random() < 0.6:
        return ("plan",), right.pipeline(rng)
    return ("spark", "--print"), right.job(rng)


def _wrong_file(rng: Random, kind: str, path: Path) -> Given:
    command, document = _right(rng)
    if kind in FAULTS:
        _, fault = FAULTS[kind]
        fault(rng, document)
        path.write_bytes(written(document).encode())
    elif kind in PLACES:
        path = PLACES[kind](rng, path)
    else:
        path.write_bytes({**FORMS, **HUGE}[kind](rng, written(document)))
    return Given(kind, (*command, str(path)), path)
