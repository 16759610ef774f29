"""The history of a run, as the clients saw it.

A history is a list of events in any order but this: writes of one writer stand in the order in
which they were sent, and reads of one reader in the order in which it read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Outcome = Literal["yes", "no", "unknown"]
"""Acknowledged, refused for certain, or nobody knows: no answer came."""


class Write(NamedTuple):
    """A value was sent to a partition; no two writes send the same value."""

    writer: str
    partition: int
    value: str
    outcome: Outcome
    transaction: str | None = None


class End(NamedTuple):
    """A transaction was to end."""

    transaction: str
    asked: Literal["commit", "abort"]
    outcome: Outcome


class Read(NamedTuple):
    """A reader of committed values was given one."""

    reader: str
    partition: int
    offset: int
    value: str


class Finished(NamedTuple):
    """A reader has read everything that there is, after all writers had ended."""

    reader: str


Event = Write | End | Read | Finished
History = list[Event]
