"""Where vectors come from: a folder of JSON files, or the public ones, packed beside this file."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from headrace.contracts.record import Record

Vector = dict[str, Any]
FORMAT = 1
PUBLIC = Path(__file__).parent / "vectors.tar.xz"


def load(folder: Path | None = None, area: str | None = None) -> list[Vector]:
    """All vectors of a folder, or the public ones; of one area if asked."""
    vectors = _public() if folder is None else _parsed(_unpacked(folder))
    return [vector for vector in vectors if area is None or vector["area"] == area]


@cache
def _public() -> tuple[Vector, ...]:
    # Each process of the tests collects several files that ask for them.
    return _parsed(_packed(PUBLIC))


def _parsed(texts: Iterator[tuple[str, bytes]]) -> tuple[Vector, ...]:
    return tuple(vector for name, text in texts for vector in _vectors(name, text))


def _vectors(name: str, text: bytes) -> list[Vector]:
    content = json.loads(text)
    if content.get("format") != FORMAT:
        message = f"{name} has format {content.get('format')}; this program reads {FORMAT}"
        raise SystemExit(message)
    return content["vectors"]  # type: ignore[no-any-return]


def _packed(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            content = files.extractfile(member)
            if content is not None:
                yield member.name, content.read()


def _unpacked(folder: Path) -> Iterator[tuple[str, bytes]]:
    files = sorted(folder.rglob("*.json"))
    if not files:
        message = f"there are no vectors in {folder}; name a folder with JSON files"
        raise SystemExit(message)
    for file in files:
        yield str(file.relative_to(folder)), file.read_bytes()


def is_record(entry: dict[str, Any]) -> bool:
    """Whether an input is a record; some only move the wall clock."""
    return "topic" in entry


def record_of(entry: dict[str, Any]) -> Record:
    """An input as a record."""
    headers = (entry.get("headers") or {}).items()
    return Record(
        bytes_of(entry["key"]),
        bytes_of(entry["value"]),
        entry["ts"],
        tuple((name, bytes_of(value)) for name, value in headers),
        entry["topic"],
        entry.get("partition", 0),
        entry["offset"],
    )


def bytes_of(value: str | int | None) -> bytes | None:
    """A key or value as it is serialised: text in UTF-8, a count as eight bytes."""
    if isinstance(value, int):
        return value.to_bytes(8, "big", signed=True)
    return None if value is None else value.encode()
