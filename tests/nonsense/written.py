"""Documents as YAML, wrong ones too: what no library would write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[a-z][a-z-]*")


class Raw(str):
    """Stands in the file as it is."""

    __slots__ = ()


class Again(str):
    """A key that stands there a second time: it equals no other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether it is the very same."""
        return self is other

    def __hash__(self) -> int:
        """As any object's."""
        return id(self)


def written(value: Any) -> str:
    """A document in block style, a line a key."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, inner in value.items() for line in _entry(f"{_key(key)}:", inner)]
    if isinstance(value, list) and value:
        return [line for inner in value for line in _item(inner)]
    return [_scalar(value)]


def _entry(key: str, value: Any) -> list[str]:
    if isinstance(value, Mapping | list) and value:
        return [key, *(f"  {line}" for line in _lines(value))]
    return [f"{key} {_scalar(value)}"]


def _item(value: Any) -> list[str]:
    first, *others = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in others)]


def _key(key: str) -> str:
    return str(key) if isinstance(key, Raw) or _PLAIN.fullmatch(key) else _scalar(key)


def _scalar(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
