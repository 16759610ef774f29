"""Progress is a promise: below what was said, nothing leaves any more that came on time.

And how far records have left is one as well: none that left is later.

On time is what a reorder still waits for; where none waits, what is in order. A window's result is
on time if the record that changed it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
    Window,
)
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.topology import with_names, with_windows
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch, Step
from headrace.services.operators.progress import left_through_ms, progress_ms
from headrace.services.operators.reorder import Reorder
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

GRACE_MS = 10
REORDER = ReorderPolicy(grace_ms=GRACE_MS, idle_ms=1)
DEDUPLICATE = DeduplicatePolicy(interval_ms=15)
LIMIT = SuppressPolicy(until="time-limit", limit_ms=12)
FINAL = SuppressPolicy(until="window-closes")
EARLY = BufferPolicy(records=2, when_full="emit-early")
SPILL = BufferPolicy(records=1, when_full="spill")
WINDOWS: tuple[Window, ...] = (
    Tumbling(size_ms=10, grace_ms=0),
    Tumbling(size_ms=10, grace_ms=7),
    Hopping(size_ms=10, advance_ms=3, grace_ms=5),
    Session(gap_ms=6, grace_ms=4),
    Session(gap_ms=6, grace_ms=0),
    Sliding(difference_ms=8, grace_ms=3),
    Unlimited(start_ms=0),
)
EVENTS: tuple[tuple[AnyOperator, ...], ...] = (
    (DEDUPLICATE,),
    (DistinctPolicy(window=Tumbling(size_ms=10, grace_ms=5)),),
    (TablePolicy(),),
    (REORDER,),
    (REORDER, DEDUPLICATE),
    (REORDER.model_copy(update={"buffer": EARLY}), DEDUPLICATE),
    (REORDER, LIMIT),
    (REORDER, TablePolicy(), LIMIT),
    # A record that leaves early is replaced by an earlier one, while it waits for the limit.
    (REORDER.model_copy(update={"buffer": EARLY}), LIMIT),
    (REORDER.model_copy(update={"buffer": EARLY}), LIMIT.model_copy(update={"buffer": SPILL})),
    (LIMIT,),
    (DEDUPLICATE, LIMIT.model_copy(update={"buffer": EARLY})),
    (
        REORDER,
        FilterPolicy(where="value.n != 3"),
        ReorderPolicy(grace_ms=4, late="topic", name="again", store="again"),
    ),
)
RESULTS = tuple(
    operators
    for window in WINDOWS
    for counted in [AggregatePolicy(function="count", window=window)]
    for operators in (
        *((counted,), (counted, FINAL), (REORDER, counted), (REORDER, counted, FINAL)),
        *((counted, LIMIT), (REORDER, counted, LIMIT)),
    )
    # A window that never closes has no final result.
    if FINAL not in operators or not isinstance(window, Unlimited)
)
CHAINS = [with_windows(with_names(policies)) for policies in (*EVENTS, *RESULTS)]

moves = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 2), st.integers(-15, 8)), min_size=1, max_size=5),
        st.lists(st.tuples(st.integers(0, 2), st.integers(-60, 60)), min_size=1, max_size=2),
        st.sampled_from(("idle", "restart", "shorter", "longest")),
    ),
    max_size=12,
)
Move = list[tuple[int, int]] | str
"""Records of keys, each so far ahead of the latest one or behind it; or what happens between.

`shorter` and `longest` are restarts with half of each wait, and with all of it.
"""
_WAITS = ("grace_ms", "limit_ms", "interval_ms")

OVERTAKEN: list[Move] = [
    [(0, 20), (1, 5), (2, 3)],
    [(0, -10)],
    "restart",
    [(1, 3)],
    [(1, 19)],
    [(1, 40)],
]
"""A record leaves early, and the next one of its key, which is earlier, takes its place."""
LONGER: list[Move] = [[(0, 18)], "shorter", [(0, -5)], "longest", [(0, -9)]]
"""A record leaves under a short grace. Behind it, one comes that is on time under a long one."""


def _never_goes_back(policies: Sequence[AnyOperator]) -> bool:
    """Whether no late record that one operator forwards is held by the next one."""
    first = policies[0]
    if isinstance(first, ReorderPolicy):
        return not any(isinstance(one, ReorderPolicy | SuppressPolicy) for one in policies[1:])
    return isinstance(first, AggregatePolicy) and not isinstance(first.window, Unlimited)


def _halved(policy: AnyOperator, times: int) -> AnyOperator:
    """Return the operator with its waits halved so often; a wait stays one."""
    waits_ms = {name: getattr(policy, name, None) for name in _WAITS}
    update: dict[str, object] = {
        name: max(1, wait_ms >> times) for name, wait_ms in waits_ms.items() if wait_ms
    }
    window = getattr(policy, "window", None)
    if window is not None and not isinstance(window, Unlimited):
        grace_ms = max(1, window.grace_ms >> times) if window.grace_ms else 0
        update["window"] = window.model_copy(update={"grace_ms": grace_ms})
    return policy.model_copy(update=update)


@dataclass
class Life:
    """A chain, what it has promised, and which of its inputs came on time."""

    longest: Sequence[AnyOperator]
    store: MemoryStore = field(default_factory=MemoryStore)
    said_ms: int = NO_TIME_MS
    time_ms: int = NO_TIME_MS
    on_time: set[bytes] = field(default_factory=set)
    inputs: int = 0
    latest_ms: int = 0
    latest_left_ms: int | None = None

    halved: int = 0

    def __post_init__(self) -> None:
        self._begin(NO_TIME_MS)

    def _begin(self, time_ms: int) -> None:
        self.policies = [_halved(policy, self.halved) for policy in self.longest]
        first = self.policies[0]
        self.waits_ms = first.grace_ms if isinstance(first, ReorderPolicy) else 0
        self.overlay = Overlay(self.store, "pipeline")
        self.chain = Chain(self.policies, self.overlay.view)
        self.chain.lateness.time_ms = time_ms

    def _restart(self, *, halved: int) -> None:
        is_longer = halved < self.halved
        self.halved = halved
        self._begin(self.chain.lateness.time_ms)
        if is_longer:
            # Progress goes back then, and counts anew.
            self.said_ms = NO_TIME_MS

    def live(self, move: Move) -> None:
        """Go one step on, and check what leaves against all that was said."""
        match move:
            case "restart":
                self._restart(halved=self.halved)
            case "shorter":
                self._restart(halved=self.halved + 1)
            case "longest":
                self._restart(halved=0)
            case "idle":
                first = self.chain.operators[0]
                if isinstance(first, Reorder) and first.releases_when_idle:
                    self.time_ms += self.waits_ms
                if (step := self.chain.release_idle()) is not None:
                    self._check(step, [])
            case _:
                assert isinstance(move, list)
                records = [self._record(*one) for one in move]
                self._check(self.chain.process(Batch.of(records)), records)
        self._say()

    def _record(self, key: int, ahead_ms: int) -> Record:
        self.inputs += 1
        at_ms = max(0, self.latest_ms + ahead_ms)
        self.latest_ms = max(self.latest_ms, at_ms)
        name = b'{"n":%d}' % self.inputs
        if at_ms >= self.time_ms - self.waits_ms:
            self.on_time.add(name)
            self.time_ms = max(self.time_ms, at_ms)
        return Record(b"%d" % key, name, at_ms, (), "t", 0, self.inputs)

    def _check(self, step: Step, records: list[Record]) -> None:
        for record, cause in zip(step.forwarded.records, step.forwarded.causes, strict=True):
            self.latest_left_ms = max(record.timestamp_ms, self.latest_left_ms or 0)
            source = record.value if record.offset is not None else None
            if source is None and cause >= 0:
                source = records[cause].value
            if source in self.on_time:
                assert record.timestamp_ms >= self.said_ms

    def _say(self) -> None:
        self.chain.save()
        self.overlay.commit({})
        says_ms = progress_ms(self.policies, self.chain)
        if _never_goes_back(self.policies) and self.said_ms != NO_TIME_MS:
            assert says_ms >= self.said_ms
        self.said_ms = max(self.said_ms, says_ms)
        assert self.latest_left_ms is None or self.latest_left_ms <= left_through_ms(self.chain)


def _name(policies: Sequence[AnyOperator]) -> str:
    return "-".join(policy.kind for policy in policies)


@pytest.mark.parametrize("policies", CHAINS, ids=_name)
@settings(max_examples=settings().max_examples // 2)
@given(moves=moves)
@example(moves=OVERTAKEN)
@example(moves=LONGER)
def test_no_record_on_time_leaves_below_the_progress(
    policies: Sequence[AnyOperator], moves: list[Move]
) -> None:
    life = Life(policies)
    for move in moves:
        life.live(move)
