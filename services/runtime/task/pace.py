"""When a task commits, and how much it takes at once: all that is time and amount.

A part of a batch is small enough to let others in, in records and in time: a user's function may
take a second a record, and its transaction must not be over meanwhile. A transaction holds as many
records as the brokers take in a third of the time that it may last: with a quota that is little.

A commit costs the same, however little is in it. So an instance makes a bounded number a second.
The more partitions have something to commit, the longer each of them waits.
"""

from __future__ import annotations

import time

from headrace.contracts.hops import Hop
from headrace.contracts.policies import ReorderPolicy
from headrace.services.settings import Settings

RECORDS_MAX = 500
"""How many records operators take at once: enough to be fast, and a core's cache holds them."""
_FEW_RECORDS = 64
"""A batch of so many costs a record hardly more than a larger one."""
_SHORT_S, _LONG_S = 0.05, 0.2
_FIRST_RECORDS = 1_000
_CAREFUL, _BOLD = 1.1, 10.0
"""How much a transaction may grow on the one before, once one was too large, and until then."""
_PARTS_OF_TIMEOUT = 3
_PARTS_OF_FAILED = 4
_COMMIT_COSTS_S = 0.0006
"""The cost of a small commit of one partition, in seconds of a worker's and a broker's cores."""
_COMMITS_SHARE = 0.6
"""The part of a core that small commits may take."""
COMMITS_PER_SECOND = int(_COMMITS_SHARE / _COMMIT_COSTS_S)
"""So many small ones partitions make, all of an instance together."""
_BREATHS_PER_COMMIT = 20
_FETCHES_PER_COMMIT = 6
_BREATH_MAX_S = 0.25
OUTLASTED = (
    "the transaction lasted longer than HEADRACE_TRANSACTION_TIMEOUT, and the broker ended it;"
    " if that goes on, raise it"
)


class Load:
    """How many partitions of an instance have something to commit."""

    def __init__(self) -> None:
        """None has."""
        self.open = 0

    def spread_s(self) -> float:
        """How long all of them together take to commit once."""
        return self.open / COMMITS_PER_SECOND

    def breath_s(self, interval_s: float) -> float:
        """Return how long to wait between two fetches where the first brought few records.

        No reader sees them before the commit, so it is a small part of the interval between two.
        Few records may be large ones, which a fetch brings one by one: with an interval of minutes
        an instance would wait 15 s behind each of them. So the wait is short in any case.
        """
        return min(max(interval_s, self.spread_s()) / _BREATHS_PER_COMMIT, _BREATH_MAX_S)

    def gathering_s(self, interval_s: float) -> float:
        """Return how long brokers gather records for a fetch; 0 where they send the first at once.

        A fetch asks for each partition, and costs as much for those that have nothing. With many
        partitions, one fetch a record would take more of a core than the records themselves.
        """
        spread_s = self.spread_s()
        gathering_s = min(spread_s / _FETCHES_PER_COMMIT, _BREATH_MAX_S)
        return gathering_s if spread_s > interval_s else 0.0


class Pace:
    """One task's; its clock only goes forward."""

    def __init__(self, settings: Settings, hop: Hop, load: Load) -> None:
        """It has nothing open; all tasks of an instance share `load`."""
        self._settings = settings
        self._load = load
        self._is_open = False
        self.hurries = False
        """Whether to commit now: the next record to blame costs as much as is uncommitted."""
        self._interval_s = settings.commit_interval_ms / 1000
        self._opened_at = 0.0
        self._commit_began_at = 0.0
        self._commit_took_s = self._interval_s
        self._records = 1
        self._long_s = settings.transaction_timeout_ms / 1000 / _PARTS_OF_TIMEOUT
        self._records_max = min(_FIRST_RECORDS, settings.commit_records_max)
        """So many the brokers take in time, as far as is known."""
        self._growth = _BOLD
        self.has_outlasted = False
        """Whether what was given up last had been open for longer than a transaction may last."""
        self.idle_s = _idle_s(hop)
        self._quiet_since = time.monotonic()

    def records_at_once(self) -> int:
        """How many records to process before anybody else has a turn."""
        return min(self._records, self._records_max)

    def few(self) -> int:
        """Fewer records than this may wait until the commit: operators take them in no time."""
        return min(_FEW_RECORDS, self.records_at_once())

    def processed(self, records: int, began_at: float) -> None:
        """So many records took from then until now."""
        took_s = time.monotonic() - began_at
        if took_s > _LONG_S:
            self._records = max(1, int(records * _LONG_S / took_s))
        elif took_s < _SHORT_S and records >= self._records:
            self._records = min(2 * self._records, RECORDS_MAX)

    def heard(self) -> None:
        """The source was not silent until now, or what waits for its silence was let go."""
        self._quiet_since = time.monotonic()

    def quiet_until_s(self) -> float | None:
        """When the source has been silent for long enough, None where nothing waits for that."""
        return None if self.idle_s is None else self._quiet_since + self.idle_s

    def opened(self) -> None:
        """The first record since the last commit was taken."""
        self._opened_at = time.monotonic()
        self._count_open(is_open=True)

    def _count_open(self, *, is_open: bool) -> None:
        self._load.open += is_open - self._is_open
        self._is_open = is_open

    def commit_begins(self) -> None:
        """A commit begins."""
        self._commit_began_at = time.monotonic()

    def committed(self, records: int) -> float:
        """It counts, with so many records; how long the commit took."""
        now_s = time.monotonic()
        was_open_s = now_s - self._opened_at
        self.hurries = False
        self._count_open(is_open=False)
        if was_open_s > self._long_s:
            self._records_max = max(1, int(records * self._long_s / was_open_s))
            self._growth = _CAREFUL
        elif records >= self._records_max:
            growth = min(self._growth, self._long_s / was_open_s)
            grown = 1 + int(growth * self._records_max)
            self._records_max = min(grown, self._settings.commit_records_max)
        self._commit_took_s = now_s - self._commit_began_at
        return self._commit_took_s

    def given_up(self, records: int) -> None:
        """Discard what was open; if it took too long, the next try is smaller."""
        was_open_s = time.monotonic() - self._opened_at
        self.hurries = False
        self._count_open(is_open=False)
        self.has_outlasted = records > 0 and was_open_s > self._long_s * _PARTS_OF_TIMEOUT
        if records and was_open_s > self._long_s:
            self._records_max = max(1, min(records, self._records_max) // _PARTS_OF_FAILED)
            self._growth = _CAREFUL

    def is_due(self, *, records: int, sent_bytes: int, records_wait: bool) -> bool:
        """Whether to commit what is open."""
        return (
            self.hurries
            or records >= self._records_max
            or sent_bytes >= self._settings.commit_bytes_max
            or self.due_in_s(records_wait=records_wait) <= 0
        )

    def due_in_s(self, *, records_wait: bool) -> float:
        """When the interval is over, from the beginning of one commit to that of the next.

        As long as the last commit took, records have their turn: a slow broker is not given commits
        alone. A task that is behind lets the whole interval pass between two: large ones cost less.
        With many open partitions, the interval is as long as they take to commit in turn.
        """
        spread_s = min(self._load.spread_s(), self._long_s)
        interval_s = max(self._interval_s, spread_s)
        due_at = self._opened_at + interval_s
        if not records_wait:
            begun = self._opened_at + min(interval_s, max(self._commit_took_s, spread_s))
            due_at = max(begun, self._commit_began_at + interval_s)
        return max(0.0, due_at - time.monotonic())


def _idle_s(hop: Hop) -> float | None:
    """After how long a silence the first operator lets go, None where none ever does."""
    idles_ms = [
        policy.idle_ms
        for policy in hop.operators
        if isinstance(policy, ReorderPolicy) and policy.idle_ms is not None
    ]
    return min(idles_ms) / 1000 if idles_ms else None
