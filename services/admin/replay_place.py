"""How far replays have come in one partition of a dead-letter topic.

That is the committed offset of a group of their own. But a replay of one reason leaves the letters
of other reasons for later, and any replay those that were put back often enough, or that died in
topics which its pipeline does not read. So with the offset, as its metadata, stands how far beyond
it replays have come by kind of letter, in JSON:

undecodable      812   letters of this reason are done before this offset
<1               900   letters that were put back less often than once are
undecodable<2    950   letters of this reason that were put back less often than twice are
<1@clicks.raw    970   letters from this topic that were put back less often than once are
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka.structs import OffsetAndMetadata

from headrace.contracts.decision import Reason
from headrace.services.kafka.cluster import Ends

_KIND = re.compile(r"(?=.)([a-z-]+|[a-z-]*<[0-9]+)?(@[A-Za-z0-9._-]+)?")


@dataclass(slots=True)
class Place:
    """One partition's."""

    start: int
    """All letters before it are done."""
    end: int
    """Where the partition ended when the replay began."""
    done: dict[str, int]
    """Letters of a kind are done before this offset."""
    leaves_out: bool = False
    """Whether this replay left out a letter, which may go back in one that allows more."""
    leaves_elsewhere: bool = False
    """Whether it left out one from a topic that its pipeline does not read."""

    @classmethod
    def read(cls, committed: OffsetAndMetadata | None, ends: Ends) -> Place:
        """Return the place that an earlier replay committed."""
        done = {} if committed is None else _done(committed.metadata)
        # Behind the end it is the offset of a topic that was deleted and made anew.
        if committed is None or max((committed.offset, *done.values())) > ends.end:
            return cls(ends.first, ends.end, {})
        return cls(max(committed.offset, ends.first), ends.end, done)

    def is_due(self, offset: int | None, reason: Reason, replays: int, topic: str) -> bool:
        """Whether a letter from a topic, which was put back so often, was left for later."""
        if offset is None or offset < self.start:
            return False
        passed = (
            until for kind, until in self.done.items() if _is_of(kind, reason, replays, topic)
        )
        return offset >= max(passed, default=self.start)

    def advance(
        self, offset: int, reason: Reason | None, replays_max: int, topics: Iterable[str] = ()
    ) -> None:
        """Count letters before an offset as done, or those of a kind if others are left.

        The pipeline reads these topics.
        """
        kind = (reason or "") + (f"<{replays_max}" if self.leaves_out else "")
        kinds = [f"{kind}@{topic}" for topic in topics] if self.leaves_elsewhere else [kind]
        if kinds == [""]:
            self.start = offset
            self.done = {other: until for other, until in self.done.items() if until > offset}
            return
        for each in kinds:
            self.done[each] = max(offset, self.done.get(each, 0))

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
    return {
        kind: until
        for kind, until in found.items()
        if _KIND.fullmatch(kind) and isinstance(until, int)
    }


def _is_of(kind: str, reason: Reason, replays: int, topic: str) -> bool:
    kind, _, of_topic = kind.partition("@")
    named, _, replays_max = kind.partition("<")
    return (
        named in {"", reason}
        and (not replays_max or replays < int(replays_max))
        and of_topic in {"", topic}
    )
