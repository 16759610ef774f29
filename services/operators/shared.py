"""What is computed of headers, once for each that records share.

A window gives all its results the same headers, as one object; most other records have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from contracts.record import Headers

Computed = TypeVar("Computed")


def of_each(headers: Sequence[Headers], compute: Callable[[Headers], Computed]) -> list[Computed]:
    """What is computed of each, in order."""
    places = list(map(id, headers))
    known = dict(zip(places, headers, strict=True))
    found = {place: compute(each) for place, each in known.items()}
    return [found[place] for place in places]
