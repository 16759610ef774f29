"""Compute something of headers, once for all records that share them.

A window gives all its results the same headers, as one object; most other records have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.contracts.record import Headers

Computed = TypeVar("Computed")


def of_each(headers: Sequence[Headers], compute: Callable[[Headers], Computed]) -> list[Computed]:
    """Return the result for each, in order; compute once for neighbours that are one object."""
    computed: list[Any] = []
    shared: Headers | None = None
    found: Any = None
    for each in headers:
        if each is not shared:
            shared, found = each, compute(each)
        computed.append(found)
    return computed
