"""Whether every record has its verdict: one that is final, or at least that it is held.

    taken = forwarded + dropped + merged + late + dead + held

Judged at the first operator, which takes what stands in the source.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from headrace.contracts.decision import Verdict
from headrace.contracts.record import Record, offset_of

_SHOWN = 3


def decision_problems(
    operator: str, taken: Sequence[Record], decisions: Sequence[Record]
) -> Iterator[str]:
    """Yield the problems with the decisions of one partition; they name a few wrong records."""
    final: dict[int, list[str]] = defaultdict(list)
    held: set[int] = set()
    for one in decisions:
        said = json.loads(one.value or b"")
        if said["operator"] != operator:
            continue
        if said["verdict"] == Verdict.HELD:
            held.add(said["offset"])
        else:
            final[said["offset"]].append(f"{said['verdict']} ({said['reason']})")
    offsets = {offset_of(one) for one in taken}
    never = sorted(offsets - final.keys() - held)
    twice = sorted(offset for offset, verdicts in final.items() if len(verdicts) > 1)
    strange = sorted((final.keys() | held) - offsets)
    for what, wrong in (
        ("have no verdict", never),
        ("have several", twice),
        ("were never taken", strange),
    ):
        if wrong:
            some = ", ".join(f"{one}: {final.get(one, [])}" for one in wrong[:_SHOWN])
            yield f"decisions of {operator}: {len(wrong)} offsets {what}: {some}"
