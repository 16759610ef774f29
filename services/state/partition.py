"""One partition's state on disk, opened, checked and closed.

A database is rebuilt from the changelog if it is damaged. It is also rebuilt if it is so old that
the changelog may have lost deletions which the database never saw. Compaction keeps a tombstone for
`TOMBSTONES_KEPT_MS` only, and purging removes the records before the changelog's first one,
tombstones included. A state restored from there may go on only if nobody else deleted anything: see
`purging`. A database from a clock far ahead of ours is rebuilt as well, since its age is unknown.
"""

from __future__ import annotations

from pathlib import Path

from headrace.contracts.errors import StateCorrupt, StateTruncated
from headrace.contracts.record import NO_TIME_MS
from headrace.contracts.topics import TOMBSTONES_KEPT_MS
from headrace.services.state.changelog import (
    ABOUT,
    CHANGELOG,
    RESTORED_AT,
    Position,
    Restoration,
    Stamp,
    is_being_restored,
    put_cleaned,
    put_position,
    put_producer,
    put_stamp,
    reached,
    read_cleaned,
    read_position,
    read_producer,
    read_purged,
    read_stamp,
)
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import RocksMemory, RocksStore, delete, put_aside

_CLOCK = "clock"
_BEGUN = "begun"
"""Names the offset at which the changelog began from which a database was restored."""
_TRUSTED_MS = TOMBSTONES_KEPT_MS // 2


def distrusted_because(overlay: Overlay, now_ms: int) -> str | None:
    """Return why the changelog may have lost deletions that a database never saw, or None."""
    written_ms = overlay.position(_CLOCK)
    age_ms = 0 if written_ms is None else now_ms - written_ms
    if age_ms > _TRUSTED_MS:
        return "it is older than the changelog's tombstones"
    if -age_ms > _TRUSTED_MS:
        # The clock was wrong then, or is now.
        return "by the clock, it was written later than now: its age is unknown"
    return None


def is_another(before_id: str | None, now_id: str | None) -> bool:
    """Return whether a topic is another one than before, as far as both are known."""
    known = {before_id, now_id}
    return None not in known and len(known) > 1


class PartitionState:
    """The rows of one partition, with the uncommitted changes."""

    def __init__(
        self,
        folder: Path,
        pipeline: str,
        memory: RocksMemory,
        now_ms: int,
        changelog_id: str | None = None,
    ) -> None:
        """Open or create the database in `folder`; one of another changelog is put aside."""
        self._folder = folder
        self._pipeline = pipeline
        self._memory = memory
        self._now_ms = now_ms
        self._changelog_id = changelog_id
        self.is_followed = False
        """Whether it followed the changelog until now, and lacks little more than the tail."""
        self.rebuilt_because: str | None = None
        """Why an older database was thrown away, None where it was not."""
        try:
            self._open()
            if is_another(self.overlay.changelog_id, changelog_id):
                self._put_aside()
            if (reason := distrusted_because(self.overlay, now_ms)) is not None:
                self.begin_anew(reason)
        except StateCorrupt as damage:
            self._delete_and_open(str(damage))

    def _open(self) -> None:
        self._store = RocksStore(self._folder, self._memory)
        try:
            self.overlay = Overlay(self._store, self._pipeline)
            if self._changelog_id is not None and self.overlay.changelog_id is None:
                self.overlay.belong_to(self._changelog_id)
            if self.overlay.position(_CLOCK) is None:
                # A state that is restored halfway gets old as well.
                self.overlay.commit({_CLOCK: self._now_ms})
        except BaseException:
            self._store.close()
            raise
        self._about = self.overlay.view(ABOUT)

    def _put_aside(self) -> None:
        self._store.close()
        aside = put_aside(self._folder)
        self.rebuilt_because = (
            "it belongs to a changelog that was deleted since, as `headrace reset` does; it lies in"
            f" {aside}, and may be deleted"
        )
        self._open()

    def begin_anew(self, reason: str) -> None:
        """Throw the database away, and go on with an empty one; views and overlay are new, too."""
        self._store.close()
        self._delete_and_open(reason)

    def _delete_and_open(self, reason: str) -> None:
        delete(self._folder)
        self.rebuilt_because = reason
        self._open()

    @property
    def position(self) -> int | None:
        """The source offset that the state has reached, None where it is new."""
        found = read_position(self._about)
        return None if found is None else found.offset

    @property
    def time_ms(self) -> int:
        """The latest timestamp that the state has seen."""
        found = read_position(self._about)
        return NO_TIME_MS if found is None else found.time_ms

    @property
    def cleaned_offset(self) -> int | None:
        """The offset of the last cleaned record, None where none is known."""
        return read_cleaned(self._about)

    @property
    def kept_up_ms(self) -> int:
        """Until when it had all that its changelog had."""
        return self.overlay.position(_CLOCK) or self._now_ms

    def know_cleaned(self, offset: int | None) -> None:
        """Put, with the next commit, which record was cleaned last; None where none was."""
        put_cleaned(self._about, offset)

    @property
    def producer(self) -> str | None:
        """The transactional id under which its owner writes; None where it has left in peace."""
        return read_producer(self._about)

    def name_producer(self, name: str | None) -> None:
        """Put under which transactional id its owner writes from the next commit on."""
        if self.producer != name:
            put_producer(self._about, name)

    @property
    def changelog_position(self) -> int:
        """The first changelog record that is not part of the state."""
        return reached(self.overlay)

    @property
    def stamp(self) -> Stamp | None:
        """The writer of the state, None where it is new."""
        return read_stamp(self._about)

    def stamp_with(self, stamp: Stamp) -> None:
        """Put the stamp of the program that writes the state from the next commit on."""
        if self.stamp != stamp:
            put_stamp(self._about, stamp)

    def restoration(self) -> Restoration:
        """Return the restoration that takes up the changelog from `changelog_position` on."""
        return Restoration(self.overlay)

    def begin_at(self, first: int) -> None:
        """Begin anew at the changelog's first record, which is behind all that is here."""
        # A restore that was cut off in its first commit has rows, and is still at offset 0.
        if self.changelog_position or is_being_restored(self.overlay):
            self.begin_anew(f"the changelog begins at offset {first}, behind what it has")
        self.overlay.commit({CHANGELOG: first, _BEGUN: first})

    def check_whole(self, changelog: str) -> None:
        """Refuse a state restored from a changelog that others deleted from, and throw it away.

        Raises StateTruncated then. Raises StateCorrupt where the end of the changelog is gone, so
        that there is no state at all.
        """
        if is_being_restored(self.overlay):
            message = (
                f"what is restored is whole at offset {self.overlay.position(RESTORED_AT)} of the"
                f" changelog {changelog}, which ends before"
            )
            raise StateCorrupt(message)
        begun, purged = self.overlay.position(_BEGUN) or 0, read_purged(self._about)
        if begun > purged:
            message = (
                f"the changelog {changelog} was truncated or made anew: its records before offset"
                f" {begun} are gone, and the state needs them from {purged};"
                " bring the topic back, or begin anew with `headrace reset`"
            )
            self.begin_anew(message)
            raise StateTruncated(message)

    def reach(self, position: int, time_ms: int, cleaned_offset: int | None = None) -> None:
        """Put the source offset and time of the next commit, and the last cleaned record."""
        if cleaned_offset is not None:
            put_cleaned(self._about, cleaned_offset)
        put_position(self._about, Position(position, time_ms))

    def commit(self, changelog_position: int, now_ms: int) -> None:
        """Write all changes to the database."""
        self.overlay.commit({CHANGELOG: changelog_position, _CLOCK: now_ms})

    def keep_up(self, now_ms: int) -> None:
        """Note that this followed the changelog until now, though nobody commits here."""
        self.overlay.commit({_CLOCK: now_ms})

    def close(self) -> None:
        """Release files and locks."""
        self._store.close()
