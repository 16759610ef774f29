"""What is computed of headers, once for each that records share.

A window gives all its results the same headers, as one object; most other records have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.contracts.record import Headers

Computed = TypeVar("Computed")


def of_each(headers: Sequence[Headers], compute: Callable[[Headers], Computed]) -> list[Computed]:
    """What is computed of each, in order; once for neighbours that are the same object."""
    computed: list[Any] = []
    shared: Headers | None = None
    found: Any = None
    for each in headers:
        if each is not shared:
            shared, found = each, compute(each)
        computed.append(found)
    return computed
