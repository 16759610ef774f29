"""The parts of a run, drawn from its seed: the same seed gives the same run.

Only the first operator may send late records to the late topic: what a later one sends there would
be mixed in by commit, and the order of the topic could not be foretold. A global deduplication
stands alone, and forgets nothing: which id leaves first there is nobody's to say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from headrace.contracts.pipeline import PipelineSpec, Sink, Source
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    Hopping,
    ReorderPolicy,
    SamplePolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
)
from tests.kill.chaos import Strike, plan
from tests.kill.farm.changes import (
    BY_ID_MS,
    GRACES_MS,
    INTERVALS_MS,
    LIMITS_MS,
    changed,
    waits,
    with_operators,
)
from tests.kill.farm.net import Fate
from tests.kill.pipelines import CLEANED, RAW, Case
from tests.properties.compose import HALF_OF_KEYS, wait_ms_of
from tests.runtime.proxy import Kind

Luck = random.Random
Late = Literal["forward", "drop", "topic"]
BlowKind = Literal[
    "broker killed", "broker stopped", "broker frozen", "brokers in turn", "broker and worker",
    "coordinator of the group stopped", "coordinator of transactions stopped",
    "cut", "slow", "mute", "deaf", "request",
    "state cut short", "state of last week", "state of another pipeline",
    "options changed", "disk full", "clock forward", "clock back",
]  # fmt: skip
BROKER_KINDS: tuple[BlowKind, ...] = (
    "broker killed", "broker killed", "broker stopped", "broker frozen", "brokers in turn",
    "broker and worker", "coordinator of the group stopped", "coordinator of transactions stopped",
)  # fmt: skip
NET_KINDS: tuple[BlowKind, ...] = ("cut", "slow", "mute", "deaf")
STATE_KINDS: tuple[BlowKind, ...] = (
    "state cut short", "state of last week", "state of another pipeline",
)  # fmt: skip
AROUND_KINDS: tuple[BlowKind, ...] = (
    "options changed", "options changed", "disk full", "clock forward", "clock back",
)  # fmt: skip
"""People change options, disks fill, clocks err."""
_AROUND_NO_OPTIONS = tuple(kind for kind in AROUND_KINDS if kind != "options changed")
_FATES = (Fate.LATE, Fate.LATE, Fate.LATE, Fate.LOST, Fate.TORN, Fate.TORN, Fate.UNANSWERED,
          Fate.SLOW)  # fmt: skip
_IN_TRANSACTIONS = (
    Kind.PRODUCE, Kind.ADD_PARTITIONS_TO_TXN, Kind.ADD_OFFSETS_TO_TXN, Kind.END_TXN,
    Kind.TXN_OFFSET_COMMIT,
)  # fmt: skip
_BEFORE = (Kind.PRODUCE, Kind.TXN_OFFSET_COMMIT, Kind.END_TXN)
_CODECS = (None, "gzip", "snappy", "lz4", "zstd")
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
FAR_BEHIND_MS = 5 * _HOUR_MS
_SHIFTS_MS = (2 * 60_000, _HOUR_MS, _DAY_MS, 30 * _DAY_MS, 365 * _DAY_MS)
"""How wrong a clock is. The stream is years back, and its poison is of 2100: by each such clock the
same records come from too far ahead."""
_ROOMS_BYTES = (0, 64 << 10, 1 << 20, 4 << 20)


class Blow(NamedTuple):
    """Strikes that hit more than a worker."""

    kind: BlowKind
    for_s: float
    broker: int
    worker: int
    request: Kind = Kind.PRODUCE
    fate: Fate = Fate.LATE
    before: Kind = Kind.PRODUCE
    passes: int = 0
    shift_ms: int = 0
    """How far a clock is set forward, or back."""
    room_bytes: int = 0
    """How much room a disk keeps when it becomes full."""
    operators: tuple[AnyOperator, ...] = ()
    """From then on, where options change."""

    def __str__(self) -> str:
        """As a line of the plan."""
        if self.kind == "options changed":
            return f"{self.kind}: {', '.join(filter(None, map(_told, self.operators)))}"
        if self.kind == "disk full":
            return f"{self.kind}, w{self.worker}, {self.room_bytes >> 10} KiB left"
        if self.shift_ms:
            hours = self.shift_ms / _HOUR_MS
            return f"{self.kind}, w{self.worker}, by {hours:.2f} h for {self.for_s:.1f} s"
        if self.kind == "request":
            late = f", {self.passes} {self.before.name} later" if self.fate is Fate.LATE else ""
            return f"{self.request.name} {self.fate.value}{late}"
        return f"{self.kind}, broker {self.broker}, w{self.worker}, for {self.for_s:.1f} s"


def _told(policy: AnyOperator) -> str:
    return f"{policy.kind} {wait_ms_of(policy)} ms" if wait_ms_of(policy) else ""


class Drawn(NamedTuple):
    """A run."""

    seed: int
    shape: str
    """The pipeline in a word."""
    case: Case
    guarantee: str
    brokers: int
    partitions: int
    quiet: tuple[int, ...]
    """Partitions in which nothing stands before the end."""
    behind: tuple[int, ...]
    """Partitions whose records are of hours ago."""
    codec: str | None
    decisions: bool
    strikes: tuple[Strike | Blow, ...]

    def __str__(self) -> str:
        """In a line."""
        return (
            f"{self.shape}, {self.guarantee}, {self.brokers} brokers, {self.partitions} partitions"
            f" ({len(self.quiet)} quiet, {len(self.behind)} behind), {self.codec or 'no codec'}"
            f"{', decisions' if self.decisions else ''}"
        )


def draw(seed: int, *, strikes: int = 12) -> Drawn:
    """A run with about so many strikes."""
    luck = random.Random(f"farm {seed}")
    shape = luck.choice(list(_SHAPES))
    records_per_s, operators = _SHAPES[shape](luck)
    spec = PipelineSpec(
        pipeline="farm",
        source=Source(topic=RAW, max_future_ms=_HOUR_MS),
        operators=tuple(operators),
        sink=Sink(topic=CLEANED),
    )
    guarantee = "at-least-once" if luck.random() < 0.2 else "exactly-once"
    brokers = 3 if luck.random() < 0.4 else 1
    partitions = luck.choice((1, 2, 3, 4, 4, 6, 8, 12))
    order = luck.sample(range(partitions), partitions)
    # One partition at least speaks all the while, or nothing would be struck.
    quiet = luck.randint(0, partitions // 3)
    behind = luck.randint(0, (partitions - quiet) // 3)
    return Drawn(
        seed,
        shape,
        Case(spec, records_per_s, None),
        guarantee,
        brokers,
        partitions,
        tuple(order[:quiet]),
        tuple(order[quiet : quiet + behind]),
        luck.choice(_CODECS),
        luck.random() < 0.3,
        _strikes(luck, seed, strikes, brokers, spec, exactly_once=guarantee == "exactly-once"),
    )


def _strikes(
    luck: Luck, seed: int, count: int, brokers: int, spec: PipelineSpec, *, exactly_once: bool
) -> tuple[Strike | Blow, ...]:
    """Half on workers, the rest on all that is around them."""
    workers = plan(seed, 10 * count, exactly_once=exactly_once)
    some: list[Strike | Blow] = list(luck.sample(workers, count // 2))
    kinds: list[BlowKind] = [luck.choice(BROKER_KINDS) for _ in range(max(2, count // 5))]
    kinds += ["request"] * max(2, count // 4)
    kinds += [luck.choice(NET_KINDS), luck.choice(STATE_KINDS)]
    some += [_blow(luck, kind, brokers, exactly_once=exactly_once) for kind in kinds]
    around = AROUND_KINDS if waits(spec.operators) else _AROUND_NO_OPTIONS
    some += [
        _blow(luck, kind, brokers, exactly_once=exactly_once)
        for kind in luck.sample(around, min(2, count))
    ]
    luck.shuffle(some)
    return tuple(_with_options(luck, some, spec))


def _with_options(
    luck: Luck, strikes: Sequence[Strike | Blow], spec: PipelineSpec
) -> Iterator[Strike | Blow]:
    """Yield the strikes; each change of options goes on from the one before it."""
    for one in strikes:
        if isinstance(one, Blow) and one.kind == "options changed":
            spec = with_operators(spec, changed(luck, spec.operators))
            yield one._replace(operators=spec.operators)
        else:
            yield one


def _blow(luck: Luck, kind: BlowKind, brokers: int, *, exactly_once: bool) -> Blow:
    shift_ms = luck.choice(_SHIFTS_MS) * {"clock forward": 1, "clock back": -1}.get(kind, 0)
    return Blow(
        kind,
        luck.uniform(0.2, 4.0),
        luck.randrange(brokers),
        luck.randrange(2),
        luck.choice(_IN_TRANSACTIONS) if exactly_once else Kind.PRODUCE,
        luck.choice(_FATES),
        luck.choice(_BEFORE) if exactly_once else Kind.PRODUCE,
        luck.randrange(3),
        shift_ms,
        luck.choice(_ROOMS_BYTES),
    )


def _late(luck: Luck) -> Late:
    return luck.choice(("forward", "drop", "topic"))


def _late_of_windows(luck: Luck) -> Literal["drop", "topic"]:
    return luck.choice(("drop", "topic"))


def _interval_ms(luck: Luck) -> int:
    return luck.choice(INTERVALS_MS)


def _grace_ms(luck: Luck) -> int:
    return luck.choice(GRACES_MS)


def _buffer(luck: Luck) -> BufferPolicy:
    if luck.random() < 0.4:
        return BufferPolicy()
    answer: Literal["emit-early", "spill"] = luck.choice(("emit-early", "spill"))
    return BufferPolicy(records=luck.choice((20, 60)), when_full=answer)


def _reorder(luck: Luck) -> ReorderPolicy:
    return ReorderPolicy(grace_ms=_grace_ms(luck), late=_late(luck), buffer=_buffer(luck))


def _by_key_and_id(luck: Luck, late: Late = "forward") -> DeduplicatePolicy:
    return DeduplicatePolicy(by="key+id", id="header.id", interval_ms=_interval_ms(luck), late=late)


def _time_limit(luck: Luck) -> SuppressPolicy:
    limit_ms = luck.choice(LIMITS_MS)
    return SuppressPolicy(until="time-limit", limit_ms=limit_ms, buffer=_buffer(luck))


def _window(luck: Luck) -> Tumbling | Hopping | Session | Sliding:
    windows: Sequence[Tumbling | Hopping | Session | Sliding] = (
        Tumbling(size_ms=3_000, grace_ms=_grace_ms(luck)),
        Hopping(size_ms=4_000, advance_ms=2_000, grace_ms=_grace_ms(luck)),
        Session(gap_ms=800, grace_ms=_grace_ms(luck)),
        Sliding(difference_ms=1_000, grace_ms=_grace_ms(luck)),
    )
    return luck.choice(windows)


def _count(luck: Luck, late: Literal["drop", "topic"]) -> AggregatePolicy:
    return AggregatePolicy(function="count", window=_window(luck), late=late)


def _final(luck: Luck) -> SuppressPolicy:
    del luck
    return SuppressPolicy(until="window-closes")


def _distinct(luck: Luck) -> DistinctPolicy:
    grace_ms = _grace_ms(luck)
    window = luck.choice(
        (Tumbling(size_ms=3_000, grace_ms=grace_ms), Session(gap_ms=800, grace_ms=grace_ms))
    )
    return DistinctPolicy(window=window, late=_late_of_windows(luck))


_Shape = Callable[[Luck], tuple[int, list[AnyOperator]]]
_SHAPES: dict[str, _Shape] = {
    "deduplicate by key": lambda luck: (
        400, [DeduplicatePolicy(by="key", interval_ms=_interval_ms(luck), late=_late(luck))],
    ),
    "deduplicate by key+id": lambda luck: (400, [_by_key_and_id(luck, _late(luck))]),
    "deduplicate by id": lambda _: (
        250, [DeduplicatePolicy(by="id", id="header.id", interval_ms=BY_ID_MS[1])],
    ),
    "reorder": lambda luck: (250, [_reorder(luck)]),
    "reorder, deduplicate": lambda luck: (250, [_reorder(luck), _by_key_and_id(luck)]),
    "reorder, deduplicate, suppress": lambda luck: (
        200, [_reorder(luck), _by_key_and_id(luck), _time_limit(luck)],
    ),
    "suppress": lambda luck: (200, [_time_limit(luck)]),
    "table, suppress": lambda luck: (200, [TablePolicy(), _time_limit(luck)]),
    "distinct": lambda luck: (200, [_distinct(luck)]),
    "count": lambda luck: (100, [_count(luck, _late_of_windows(luck))]),
    "count, filter": lambda luck: (
        100, [_count(luck, _late_of_windows(luck)), FilterPolicy(where="value >= 2")],
    ),
    "sample, count": lambda luck: (
        100, [SamplePolicy(every=2), _count(luck, _late_of_windows(luck))],
    ),
    "count, suppress": lambda luck: (
        100, [_count(luck, _late_of_windows(luck)), _final(luck)],
    ),
    "reorder, count, suppress": lambda luck: (
        100, [_reorder(luck), _count(luck, "drop"), _final(luck)],
    ),
    # Without rows: a changelog says how far they are, and nothing else.
    "filter": lambda _: (400, [FilterPolicy(where=HALF_OF_KEYS)]),
    "sample": lambda _: (400, [SamplePolicy(every=2)]),
}  # fmt: skip
