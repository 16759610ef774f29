"""Delta tables read by their log and files alone, so that a judge needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def live_files(table: Path) -> list[Path]:
    """The files that a table's log says belong to it."""
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
    """The rows of a table."""
    for file in live_files(table):
        yield from pq.ParquetFile(file).read().to_pylist()
