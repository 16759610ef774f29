"""The race as a picture: bars of records per CPU-second, an operator a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from tests.bench.race.contestants import CONTESTANTS
from tests.bench.race.figures import Row

_WIDTH = 820
_LABELS_WIDTH = 250
_VALUES_WIDTH = 80
_BAR_HEIGHT = 16
_LINE_HEIGHT = 22
_GROUP_HEIGHT = 40
_MARGIN = 16
_OURS, _OTHERS = "#1b6ca8", "#9aa5b1"
# Readable on a light and on a dark page alike.
_TEXT = "#6b7785"


def chart(rows: Sequence[Row]) -> str:
    """An SVG of every row that could be measured."""
    measured = [row for row in rows if row.per_cpu_second is not None]
    longest = max(_rate(row) for row in measured)
    elements: list[str] = []
    top = _MARGIN
    for operator in dict.fromkeys(row.operator for row in measured):
        group = [row for row in measured if row.operator == operator]
        elements.append(_text(_MARGIN, top + 20, f"{operator}, records per CPU-second", bold=True))
        top += _GROUP_HEIGHT - 10
        for row in group:
            elements += _bar(row, top, longest)
            top += _LINE_HEIGHT
        top += _GROUP_HEIGHT // 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + _MARGIN}"'
        ' font-family="system-ui, sans-serif" font-size="13">'
    )
    return "\n".join([head, *elements, "</svg>"]) + "\n"


def _bar(row: Row, top: int, longest: float) -> Iterator[str]:
    room = _WIDTH - _LABELS_WIDTH - _VALUES_WIDTH - _MARGIN
    width = max(1, round(room * _rate(row) / longest))
    colour = _OURS if row.contestant == "headrace" else _OTHERS
    middle = top + _BAR_HEIGHT - 4
    label = f"{CONTESTANTS[row.contestant].title}, {row.guarantee.replace('-', ' ')}"
    yield _text(_MARGIN, middle, label)
    yield (
        f'<rect x="{_LABELS_WIDTH}" y="{top}" width="{width}" height="{_BAR_HEIGHT}"'
        f' rx="2" fill="{colour}"/>'
    )
    yield _text(_LABELS_WIDTH + width + 8, middle, f"{_rate(row):,.0f}")


def _rate(row: Row) -> float:
    return row.per_cpu_second.median if row.per_cpu_second is not None else 0.0


def _text(x: int, y: int, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{_TEXT}"{weight}>{escape(text)}</text>'
