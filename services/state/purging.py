"""Find the changelog records that no restore needs any more, and rewrite rows that hold them up.

Operators sweep rows whose time is over from the state, whole stretches at once, and write no
tombstones for them. Compaction keeps the newest record of every id that ever was. So the changelog
would grow for ever. Instead, headrace deletes the records before some offset.

Records before an offset may go if each store vouches for that offset: of no row of it which still
counts is the newest record before the offset. A store vouches

    by time     The rows that an operator wrote up to a commit are over once its own stream time has
                moved on by its lifespan, and what was due by then has left. So this remembers a few
                commits, each with the stream time of every operator, and picks one that lies back
                far enough. The source's time would not do: behind a filter, time may stand still
                while it moves on for the source.
    by walking  Its rows are put again, a few at every commit, from the first to the last. After the
                walk every row that counts has a record behind the offset at which the walk began.
                This is for rows that stay for ever (a table, windows that never close), for rows
                whose time cannot be known in advance (final results of windows that another
                service made), and for operators whose time stands still. A walk begins when much
                would be gained by it, and puts one row again for every few new ones, so it costs a
                fraction of what is written.

Only then does a commit write the offset, as the row `purged`. The same commit puts every row again
that belongs to no time: rows about the state as a whole, and the operators' header rows, which all
have keys that begin with 0x00. When that commit counts, the records before the offset are deleted.
So a restore finds every row that counts behind the first record that is there. By `purged` it knows
that nothing else was deleted. It refuses a changelog from which anybody else deleted records.

Times and walks are part of the state. Otherwise a service that is restarted more often than a
lifespan would never delete anything.

key                                 value
0x00 'history'                      which commits are remembered, and how far a walk is, JSON
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import NO_TIME_MS
from headrace.services.operators.lifespan import clock_ms, latest_ms, lifespans, row_life_ms
from headrace.services.operators.operator import Operator, View
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.suppress import Suppress
from headrace.services.state.changelog import ABOUT, put_purged, read_purged
from headrace.services.state.layout import end_of
from headrace.services.state.overlay import Overlay

WALK_FROM_RECORDS = 100_000
"""A walk begins when it would allow to delete so many records."""
WALK_SHARE = 4
"""A walk puts one row again for so many that the operators put."""
_SAMPLES_MAX = 64
_SAMPLES_PER_LIFE = 32
_HISTORY_KEY = b"history"
_HEADERS, _ROWS = b"\x00", b"\x01"


class Sample(NamedTuple):
    """A commit that is remembered."""

    end: int
    """The offset behind its last record in the changelog."""
    source_ms: int
    clocks_ms: Sequence[int]
    """For each operator that keeps state, the latest time of a row that it had put by then."""


class Walk(NamedTuple):
    """Stores whose rows are being put again."""

    start: int
    """The offset behind the last record that the changelog had when the walk began."""
    covers: tuple[str, ...]
    """All stores of the walk."""
    left: tuple[str, ...]
    """The stores that the walk has not finished, the present one first."""
    row: bytes
    """The key in that store at which the walk goes on."""


class Purging:
    """The purging of one partition's changelog; made anew with its operators."""

    def __init__(
        self,
        overlay: Overlay,
        policies: Sequence[AnyOperator],
        operators: Sequence[Operator],
        end: int,
    ) -> None:
        """Go on where an earlier instance over the same state was; `end` is the changelog's."""
        self._overlay = overlay
        self._about = overlay.view(ABOUT)
        self._lives = lifespans(policies)
        # Looked up each time: after an operator failed on a record, a new one takes its place.
        self._operators = operators
        self._life_ms = row_life_ms(policies)
        self._end = end
        self._samples: list[Sample] = []
        self._walk: Walk | None = None
        self._walked: dict[str, int] = {}
        """By store, the offset at which the last walk through it began."""
        self._source_ms = NO_TIME_MS
        self._is_changed = False
        self.purged = read_purged(self._about)
        """Records before this offset may be gone."""
        self._load()

    def before_commit(self, source_ms: int, *, may_purge: bool) -> None:
        """Put the rows that belong to the next commit; the operators have put all of theirs."""
        if self._life_ms is None:
            return
        self._source_ms = source_ms
        self._walk_on()
        offset = min(map(self._vouched, range(len(self._lives))))
        if may_purge and offset > self.purged:
            self._purge(offset)
        if self._is_changed:
            self._put_history()

    def after_commit(self, end: int) -> None:
        """Note that the commit counts, and that the changelog ends behind it."""
        self._end = end
        if self._life_ms is None:
            return
        last_ms = self._samples[-1].source_ms if self._samples else NO_TIME_MS
        if self._source_ms > last_ms + self._life_ms // _SAMPLES_PER_LIFE:
            clocks_ms = [latest_ms(self._operators[life.position]) for life in self._lives]
            self._samples.append(Sample(end, self._source_ms, clocks_ms))
            if len(self._samples) > _SAMPLES_MAX:
                self._samples = self._samples[::2]
            self._is_changed = True

    def _vouched(self, index: int) -> int:
        """Return the offset before which no record of a store counts."""
        life = self._lives[index]
        by_walking = self._walked.get(life.store, 0)
        if life.length_ms is None or not life.is_sure:
            return by_walking
        over_ms = self._clock_ms(index) - life.length_ms
        over = [sample.end for sample in self._samples if sample.clocks_ms[index] <= over_ms]
        return max(by_walking, over[-1] if over else 0)

    def _clock_ms(self, index: int) -> int:
        """Return an operator's time; no later than when the first that it holds is due.

        Behind a restart with a shorter wait, rows are held that leave with the next record.
        """
        operator = self._operators[self._lives[index].position]
        time_ms = clock_ms(operator)
        if isinstance(operator, Reorder | Suppress) and operator.held_from_ms is not None:
            return min(time_ms, operator.held_from_ms + operator.wait_ms)
        return time_ms

    def _wanted(self) -> int:
        """Return the offset that every store should vouch for by now, by the source's time."""
        assert self._life_ms is not None
        over_ms = self._source_ms - self._life_ms
        over = [sample.end for sample in self._samples if sample.source_ms <= over_ms]
        return over[-1] if over else 0

    def _purge(self, offset: int) -> None:
        """Put the offset before which records may be gone, and put again the rows it would lose."""
        put_purged(self._about, offset)
        self.purged = offset
        _put_again(self._about, self._about.prefix, end_of(self._about.prefix))
        for life in self._lives:
            view = self._overlay.view(life.store)
            _put_again(view, view.prefix + _HEADERS, view.prefix + _ROWS)
        self._samples = [sample for sample in self._samples if sample.end > offset]
        self._is_changed = True

    def _walk_on(self) -> None:
        if self._walk is None:
            self._walk = self._next_walk()
        if self._walk is None:
            return
        self._is_changed = True
        changed = sum(len(rows) for _, _, rows in self._overlay.changed_stores())
        start, covers, left, row = self._walk
        view = self._overlay.view(left[0])
        count = changed // WALK_SHARE + 1
        last = _put_again(view, view.prefix + row, end_of(view.prefix), count)
        if last is not None:
            self._walk = Walk(start, covers, left, last[len(view.prefix) :] + b"\x00")
        elif len(left) > 1:
            self._walk = Walk(start, covers, left[1:], b"")
        else:
            self._walk = None
            self._walked |= dict.fromkeys(covers, start)

    def _next_walk(self) -> Walk | None:
        """Return a walk through the stores that hold the others up, if it is worth it."""
        if self._end - self.purged < WALK_FROM_RECORDS:
            return None
        wanted = self._wanted()
        vouched = {life.store: self._vouched(index) for index, life in enumerate(self._lives)}
        gained = wanted - max(self.purged, min(vouched.values()))
        if gained < WALK_FROM_RECORDS:
            return None
        covers = tuple(store for store, offset in vouched.items() if offset < wanted)
        return Walk(self._end, covers, covers, b"")

    def _stores(self) -> list[str]:
        return [life.store for life in self._lives]

    def _load(self) -> None:
        row = self._about.get_many([self._about.prefix + _HISTORY_KEY])[0]
        if row is None:
            return
        try:
            history = json.loads(row)
            # The samples know nothing of an operator that is new, so this begins anew.
            if history["stores"] == self._stores():
                self._samples = [Sample(*sample) for sample in history["samples"]]
                self._walked = history["walked"]
                self._walk = history["walk"] and _walk_of(*history["walk"])
        except (ValueError, LookupError, TypeError) as damage:
            message = f"what is remembered of purges cannot be read ({damage!r})"
            raise StateCorrupt(message) from damage

    def _put_history(self) -> None:
        walk = self._walk and [*self._walk[:3], self._walk.row.hex()]
        history = {
            "stores": self._stores(),
            "samples": self._samples,
            "walked": self._walked,
            "walk": walk,
        }
        row = json.dumps(history, separators=(",", ":"), sort_keys=True).encode()
        self._about.put_many({self._about.prefix + _HISTORY_KEY: row})
        self._is_changed = False


def _walk_of(start: int, covers: list[str], left: list[str], row: str) -> Walk:
    return Walk(start, tuple(covers), tuple(left), bytes.fromhex(row))


def _put_again(view: View, start: bytes, end: bytes, count: int | None = None) -> bytes | None:
    """Put rows again as they are, at most `count`; return the last key if there may be more."""
    again = dict(islice(view.range(start, end), count))
    view.put_many(again)
    return next(reversed(again)) if count is not None and len(again) == count else None
