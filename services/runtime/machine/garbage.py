"""Python's search for objects that hold one another, by the clock.

Records come and go by the thousand and hold no cycles. Python searches each time that so many
objects more are alive, which here says how much is on its way and nothing else: it looked through
the same records again and again, for 7 % of the CPU time of a windowed count.
"""

from __future__ import annotations

import asyncio
import gc
from itertools import count

_YOUNG_EVERY_S = 60.0
_ALL_EVERY = 30
"""So many searches of the young, and then one of all that is alive."""
_OBJECTS_MAX = 2_000_000
"""So many more objects are searched at once: a user's function may make cycles faster than that."""
_YOUNG, _ALL = 1, 2


def collect_by_clock_alone() -> None:
    """Have Python leave the search to `keep_collecting`, and what is there by now out of it."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_MAX, 50, 100)


async def keep_collecting() -> None:
    """Search, for as long as this is awaited."""
    for number in count(1):
        await asyncio.sleep(_YOUNG_EVERY_S)
        gc.collect(_ALL if number % _ALL_EVERY == 0 else _YOUNG)
