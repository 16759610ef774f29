"""The next step, for log lines of libraries that only say what went wrong."""

from __future__ import annotations

import re

_NEXT = {
    "Attempt to fetch offsets": "asked again",
    "Cannot send": "it is sent again",
    "Could not send": "it is sent again",
    "Failed fetch messages": "they are fetched again",
    "Got error produce response: GivenUpError": "its partition begins again from its last commit",
    "Got error produce response": "the records are sent again",
    r"Heartbeat failed for group \S+: coordinator": "the group's coordinator is looked for",
    r"Heartbeat failed for group \S+": "the instance joins again",
    "Marking the coordinator dead": "another one is looked for",
    "Unable connect to": "tried again until it answers",
    "Unable to request metadata": "another broker is asked",
}
"""By how aiokafka's messages begin; the first that fits."""


def what_next(message: str) -> str:
    """A library's message, with what happens next where that is known."""
    following = next((said for start, said in _NEXT.items() if re.match(start, message)), None)
    return message if following is None else f"{message.rstrip('.')}; {following}"
