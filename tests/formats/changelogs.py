"""A changelog as the sidecar writes it: one commit of a pipeline with all that a stamp may say.

A file `changelog/1-commit.json` is a list of records, key and row in hexadecimal, null where a row
was deleted. Its number counts what was ever written, and the highest is what is written today.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.changelog import (
    ABOUT,
    ChangelogRecord,
    Position,
    put_cleaned,
    put_position,
    put_purged,
    put_stamp,
    records_of,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.stamps import stamp_of
from tests.formats.states import STATES

FOLDER = Path(__file__).parent / "changelog"
POSITION = Position(1 << 40, -1)
PURGED = 12
CLEANED = 1 << 41
SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "golden",
        "source": {"topic": "clicks.raw"},
        "operators": [
            {"reorder": {"grace": "5s", "buffer": {"records": 10, "when-full": "spill"}}},
            {"deduplicate": {"by": "key+id", "id": "header.id", "interval": "3s"}},
            {"distinct": {"window": {"kind": "session", "gap": "1s", "grace": "1s"}}},
            {"table": {}},
            {"filter": {"where": 'header.id != "9"'}},
            {
                "aggregate": {
                    "function": "first",
                    "window": {"kind": "tumbling", "size": "4s", "grace": "5s"},
                }
            },
            {"suppress": {"until": "window-closes"}},
        ],
        "sink": {"topic": "clicks.cleaned"},
    }
)


def written_today() -> list[ChangelogRecord]:
    """The records of one commit."""
    (hop,) = SPEC.hops()
    overlay = Overlay(MemoryStore(), SPEC.pipeline)
    about = overlay.view(ABOUT)
    put_stamp(about, stamp_of(SPEC, hop, f"{12:032x}", 4, 6))
    chain = Chain(hop.operators, overlay.view)
    chain.process(Batch.of(STATES["reorder"].before))
    chain.save()
    view = overlay.view("table")
    view.put_many({view.prefix + b"\x01gone": None})
    put_cleaned(about, CLEANED)
    put_position(about, POSITION)
    put_purged(about, PURGED)
    return records_of(overlay)


def golden_files() -> list[Path]:
    """All forms that were ever written, the latest last."""
    return sorted(FOLDER.glob("*-commit.json"), key=lambda path: int(path.stem.partition("-")[0]))


def read_records(path: Path) -> list[ChangelogRecord]:
    """The records in a golden file."""
    written: list[tuple[str, str | None]] = json.loads(path.read_text("utf-8"))
    return [
        (bytes.fromhex(key), None if row is None else bytes.fromhex(row)) for key, row in written
    ]


def write_missing() -> Path | None:
    """Make a golden file if what is written today is in none."""
    files, records = golden_files(), written_today()
    if files and dict(read_records(files[-1])) == dict(records):
        return None
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{len(files) + 1}-commit.json"
    written = [(key.hex(), row if row is None else row.hex()) for key, row in records]
    path.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    return path
