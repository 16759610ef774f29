"""How far replays have come in one partition of a dead-letter topic.

That is the committed offset of a group of their own. But a replay of one reason leaves the letters
of other reasons for later; so with the offset, as its metadata, stands how far beyond it single
reasons have come: `{"undecodable": 812}`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from aiokafka.structs import OffsetAndMetadata

from headrace.contracts.decision import Reason
from headrace.services.kafka.cluster import Ends


@dataclass(slots=True)
class Place:
    """One partition's."""

    start: int
    """All letters before it are done."""
    end: int
    """Where the partition ended when the replay began."""
    done: dict[str, int]
    """Letters of a reason are done before this offset."""

    @classmethod
    def read(cls, committed: OffsetAndMetadata | None, ends: Ends) -> Place:
        """Return the place that an earlier replay committed."""
        done = {} if committed is None else _done(committed.metadata)
        # Behind the end it is the offset of a topic that was deleted and made anew.
        if committed is None or max((committed.offset, *done.values())) > ends.end:
            return cls(ends.first, ends.end, {})
        return cls(max(committed.offset, ends.first), ends.end, done)

    def is_due(self, offset: int | None, reason: Reason) -> bool:
        """Whether a letter was left for later."""
        return offset is not None and offset >= self.done.get(reason, self.start)

    def advance(self, offset: int, reason: Reason | None) -> None:
        """All letters before an offset are done, or those of one reason."""
        if reason is not None:
            self.done[reason] = max(offset, self.done.get(reason, 0))
            return
        self.start = offset
        self.done = {other: until for other, until in self.done.items() if until > offset}

    def written(self) -> OffsetAndMetadata:
        """Return the place as an offset to commit."""
        return OffsetAndMetadata(self.start, json.dumps(self.done) if self.done else "")


def _done(metadata: str) -> dict[str, int]:
    # Tools that set a group's offsets write metadata of their own, or none.
    try:
        found = json.loads(metadata)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {reason: until for reason, until in found.items() if isinstance(until, int)}
