"""Draw the records held against the records read, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_ROWS_MAX = 60
_WIDTH, _HEIGHT, _MARGIN = 820, 320, 40
_READ, _HELD, _TEXT = "#9aa5b1", "#1b6ca8", "#6b7785"


class Seen(NamedTuple):
    """One look at the job."""

    at_s: float
    read: float
    held: float
    batch: int
    memory_mib: float
    checkpoint_files: int
    checkpoint_mib: float


def drawn(seen: Sequence[Seen], records: int, rows: int, per_batch: int | None) -> tuple[str, str]:
    """The table in Markdown, and the picture in SVG."""
    command = f"python -m tests.bench.releasing --records {records} --rows {rows}"
    if per_batch is not None:
        command += f" --records-per-batch {per_batch}"
    held, memory_mib = (max(getattr(one, name) for one in seen) for name in ("held", "memory_mib"))
    lines = [
        "# The rows that a job holds while it reads a backlog",
        "",
        f"`{command}`: a week of {records:,} records, and {rows:,} rows of progress.",
        "",
        f"At most {held:,.0f} records were held, and {memory_mib:,.0f} MiB were resident.",
        "",
        "| s | read | held | micro-batch | MiB | files of the checkpoint | MiB of it |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(f'{value:,.0f}' for value in one)} |" for one in _thinned(seen)),
        "",
        "![read and held over time](releasing.svg)",
    ]
    return "\n".join(lines) + "\n", _picture(seen, records)


def _thinned(seen: Sequence[Seen]) -> Sequence[Seen]:
    """Leave out most looks of a long run, and never the last."""
    return [*seen[: -1 : len(seen) // _ROWS_MAX + 1], seen[-1]]


def _picture(seen: Sequence[Seen], records: int) -> str:
    until_s = max(one.at_s for one in seen)

    def line(name: str, colour: str) -> str:
        points = " ".join(
            f"{_MARGIN + one.at_s / until_s * (_WIDTH - 2 * _MARGIN):.1f},"
            f"{_HEIGHT - _MARGIN - getattr(one, name) / records * (_HEIGHT - 2 * _MARGIN):.1f}"
            for one in seen
        )
        return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'

    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="13">'
    )
    legend = (
        f'<text x="{_MARGIN}" y="20" fill="{_READ}">read, of {records:,}</text>'
        f'<text x="{_MARGIN + 220}" y="20" fill="{_HELD}">held</text>'
        f'<text x="{_MARGIN}" y="{_HEIGHT - 12}" fill="{_TEXT}">{until_s:,.0f} seconds</text>'
    )
    return "\n".join([head, legend, line("read", _READ), line("held", _HELD), "</svg>"]) + "\n"
