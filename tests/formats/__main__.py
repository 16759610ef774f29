"""Writes golden bytes for states that have none yet, and for states whose bytes have changed.

    python -m tests.formats

Files that are there are never touched: what was written once is on somebody's disk.
"""

from __future__ import annotations

from tests.formats import changelogs
from tests.formats.states import (
    FOLDER,
    STATES,
    golden_files,
    read_rows,
    write_rows,
    written_today,
)


def main() -> None:
    """Write what is missing, and say so."""
    FOLDER.mkdir(exist_ok=True)
    for name in STATES:
        rows = written_today(name)
        files = golden_files(name)
        if files and read_rows(files[-1]) == rows:
            continue
        path = FOLDER / f"{len(files) + 1}-{name}.json"
        write_rows(path, rows)
        print(f"{path.relative_to(FOLDER.parent)}: {len(rows)} rows")
    changelog = changelogs.write_missing()
    if changelog is not None:
        print(changelog.relative_to(FOLDER.parent))


main()
