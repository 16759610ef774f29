"""Tables read by their log and files alone, so that a judge needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro
import pyarrow.parquet as pq

_DELETED = 2
"""The status of a file that a manifest of Iceberg's has no more."""


def live_iceberg_files(table: Path) -> list[Path]:
    """The files of the current snapshot of a table in a folder."""
    metadata = table / "metadata"
    version = (metadata / "version-hint.text").read_text("utf-8").strip()
    said = json.loads((metadata / f"v{version}.metadata.json").read_text("utf-8"))
    current = said["current-snapshot-id"]
    (listed,) = [one["manifest-list"] for one in said["snapshots"] if one["snapshot-id"] == current]
    manifests = [_path(one["manifest_path"]) for one in _avro_rows(_path(listed))]
    entries = [entry for manifest in manifests for entry in _avro_rows(manifest)]
    return [_path(one["data_file"]["file_path"]) for one in entries if one["status"] != _DELETED]


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _avro_rows(file: Path) -> list[Any]:
    with file.open("rb") as opened:
        return list(fastavro.reader(opened))


def live_files(table: Path) -> list[Path]:
    """The files that a Delta table's log says belong to it."""
    live: set[str] = set()
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text("utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                live.add(action["add"]["path"])
            elif "remove" in action:
                live.remove(action["remove"]["path"])
    return [table / unquote(name) for name in live]


def live_rows(table: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Delta table."""
    return rows_of(live_files(table))


def rows_of(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The rows of files of Parquet."""
    for file in files:
        yield from pq.ParquetFile(file).read().to_pylist()
