"""A shared producer's transaction: many partitions of an instance are in it, and end together.

    resting    no transaction is open
    open       some partitions have sent something; others may still begin
    closing    one of them is due: nobody begins, and each that is in it sends what is left
    ending     all are done: offsets are told, and the transaction ends
    broken     what was sent since the last end counts for nothing, until there is a new epoch

A partition that fails, or is lost, while it is in the transaction breaks it: nobody can take
back what one partition has sent, so all of the producer begin again from what is committed. While
the transaction ends, it is too late for that.

The group decides whether the end counts: the offsets carry the member and its generation, and
brokers take them from an owner alone (KIP-447). So the producer's name need not say whose
partitions it has. A partition's own state names the producer, so that a successor can end a
transaction that its owner left open; `must_end` is that rule.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

Partition = TypeVar("Partition", bound=Hashable)
Offset = TypeVar("Offset")


class Stage(Enum):
    """How far a transaction is."""

    RESTING = "resting"
    OPEN = "open"
    CLOSING = "closing"
    ENDING = "ending"
    BROKEN = "broken"


class SharedTransaction(Generic[Partition, Offset]):
    """The transaction of one producer; its caller does what it says."""

    def __init__(self) -> None:
        """No transaction is open."""
        self.stage = Stage.RESTING
        self._in: set[Partition] = set()
        self._done: dict[Partition, Offset] = {}

    @property
    def partitions(self) -> Collection[Partition]:
        """Those that are in the transaction."""
        return self._in

    def may_begin(self) -> bool:
        """Whether a partition may begin to send."""
        return self.stage in {Stage.RESTING, Stage.OPEN}

    def begin(self, partition: Partition) -> bool:
        """A partition begins to send; whether the transaction begins with it."""
        assert self.may_begin()
        is_first = self.stage is Stage.RESTING
        self.stage = Stage.OPEN
        self._in.add(partition)
        return is_first

    def close(self) -> None:
        """One is due: let nobody begin any more."""
        if self.stage is Stage.OPEN:
            self.stage = Stage.CLOSING

    def owes(self, partition: Partition) -> bool:
        """Whether the others wait for what a partition has still to send."""
        waits = self.stage is Stage.CLOSING
        return waits and partition in self._in and partition not in self._done

    def done(self, partition: Partition, offset: Offset) -> Mapping[Partition, Offset] | None:
        """A partition has sent all, up to an offset; the offsets of all, once it was the last."""
        assert partition in self._in
        assert partition not in self._done
        self.close()
        self._done[partition] = offset
        if len(self._done) < len(self._in):
            return None
        self.stage = Stage.ENDING
        return self._done

    def ended(self) -> None:
        """All of it counts."""
        assert self.stage is Stage.ENDING
        self._clear(Stage.RESTING)

    def breaks_without(self, partition: Partition) -> bool:
        """Whether the transaction cannot go on if a partition leaves now."""
        return partition in self._in and self.stage is not Stage.ENDING

    def broke(self) -> None:
        """Discard the transaction; if it was ending, only a new epoch tells what it came to."""
        self._clear(Stage.BROKEN)

    def revived(self) -> None:
        """It has a new epoch: nothing of an earlier one can come any more."""
        assert self.stage is Stage.BROKEN
        self.stage = Stage.RESTING

    def _clear(self, stage: Stage) -> None:
        self.stage = stage
        self._in, self._done = set(), {}


class Word(NamedTuple):
    """A coordinator's word on a producer's last transaction, once nothing is on its way."""

    epoch: int
    is_given: bool
    """A producer was given this epoch, and has begun nothing."""
    is_aborted: bool
    """The owner of the epoch before has not ended it in time, or another has come."""


def must_end(named: str | None, ours: Collection[str]) -> bool:
    """Whether a partition's new owner ends the transaction of the producer that its state names.

    An owner that gives a partition up in peace takes the name back, with its last commit. One of
    our own had a new epoch when this instance began, or when it broke.
    """
    return named is not None and named not in ours


def must_end_stranger(*, is_over: bool, is_alone: bool) -> bool:
    """Whether a partition's new owner ends the transaction of somebody who has something open.

    State may name nobody, or somebody later: an owner died before it had named its producer, or
    a broker died when one had left in peace, and a place was not told how that ended. A
    transaction that is over by its coordinator's word, and stands open still, has nobody else who
    ends it soon. One that is not over is an earlier owner's where this partition alone writes. It
    is somebody else's where others write as well.
    """
    return is_over or is_alone


def is_behind(word: Word, epoch: int) -> bool:
    """Whether a transaction of this epoch is over, by the word on its producer."""
    return epoch < word.epoch + word.is_aborted


def verdict(word: Word, epoch: int) -> bool | None:
    """Whether a transaction of this epoch was committed, by that word; None in doubt.

    A transaction whose end its coordinator did not hear is aborted under the next epoch, and the
    producer that comes then is given one more. We abort nothing by ourselves. A word is about the
    last transaction alone. So a giver of a new epoch first ends what the word before
    was about, wherever it stands open, and then what the new word is about.
    """
    if word.is_aborted:
        return False if epoch >= word.epoch - 1 else None
    return True if word.is_given and epoch == word.epoch - 1 else None
