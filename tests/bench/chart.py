"""Bars as a picture, in groups; ours in a colour of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

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


class Bar(NamedTuple):
    """A contestant and its number."""

    label: str
    value: float
    is_ours: bool


class Group(NamedTuple):
    """Bars that are compared with each other."""

    title: str
    bars: Sequence[Bar]


def chart(groups: Sequence[Group]) -> str:
    """An SVG of all groups, one scale for all."""
    longest = max(bar.value for group in groups for bar in group.bars)
    elements: list[str] = []
    top = _MARGIN
    for group in groups:
        elements.append(_text(_MARGIN, top + 20, group.title, bold=True))
        top += _GROUP_HEIGHT - 10
        for bar in group.bars:
            elements += _drawn(bar, top, longest)
            top += _LINE_HEIGHT
        top += _GROUP_HEIGHT // 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + _MARGIN}"'
        ' font-family="system-ui, sans-serif" font-size="13">'
    )
    return "\n".join([head, *elements, "</svg>"]) + "\n"


def _drawn(bar: Bar, top: int, longest: float) -> Iterator[str]:
    room = _WIDTH - _LABELS_WIDTH - _VALUES_WIDTH - _MARGIN
    width = max(1, round(room * bar.value / longest))
    middle = top + _BAR_HEIGHT - 4
    yield _text(_MARGIN, middle, bar.label)
    yield (
        f'<rect x="{_LABELS_WIDTH}" y="{top}" width="{width}" height="{_BAR_HEIGHT}"'
        f' rx="2" fill="{_OURS if bar.is_ours else _OTHERS}"/>'
    )
    yield _text(_LABELS_WIDTH + width + 8, middle, f"{bar.value:,.0f}")


def _text(x: int, y: int, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{_TEXT}"{weight}>{escape(text)}</text>'
