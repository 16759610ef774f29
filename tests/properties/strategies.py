"""Inputs that are likely to hurt: few keys and times, so that everything meets everything."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from headrace.contracts.policies import BufferPolicy, Hopping, Session, Sliding, Tumbling, Unlimited
from headrace.contracts.record import Headers, Record

if TYPE_CHECKING:
    from headrace.contracts.policies import Window

TOPIC = "input"
FAR_FUTURE_MS = 1 << 40

KEYS = (b"a", b"b", b"ab", b"a\x00", b"a\x00\x00\x00\x00", b"", b"\xff", None)
"""Prefixes of each other, and ends in zero bytes, lest a key run into what stands behind it."""

VALUES = (b"1", b"2", b"30", b"", b"not a number", None)

HEADERS: tuple[Headers, ...] = (
    (),
    (("id", b"1"),),
    (("id", b"2"),),
    (("id", b"b"),),
    (("id", b""),),
    (("id", None),),
    (("id", b"1"), ("other", None), ("id", b"2")),
    (("\u00e9", b"\xff"), ("\u00e9", b"\xff")),
)

SECOND_MS = 1_000
"""Operators keep and drop state by stretches of a second or more, so inputs span many."""

positive_durations_ms = st.sampled_from((1, 5_000, 10_000, 15_000))
durations_ms = st.one_of(st.just(0), positive_durations_ms)


MORE = settings(max_examples=settings().max_examples * 3)
"""For properties that compare with an oracle: an example takes a millisecond or two."""

seeds = st.integers(0, 1 << 32)


def chance(seed: int) -> Random:
    """The same luck for the same seed."""
    return Random(seed)


class _World:
    """A table of records that a seed makes: which keys there are, and how times are spread.

    On a grid of five seconds, times often differ by a whole duration, or one millisecond more;
    close together, many are equal; anywhere, a single one of the far future makes all others late.
    """

    def __init__(self, seed: int, values: tuple[bytes | None, ...]) -> None:
        """The same seed makes the same table."""
        self._seed = seed
        self._values = values
        luck = chance(seed)
        self._keys = luck.sample(KEYS, luck.randint(1, 4))
        self._spread = luck.choice(("grid", "grid", "near", "anywhere"))
        self._drift_ms = luck.choice((0, 0, 1, 2_500, 5_000))

    def record(self, index: int, position: int) -> Record:
        """Record `index` of the table, standing at a position of the input."""
        luck = chance(self._seed * 1_000 + index)
        return Record(
            luck.choice(self._keys),
            luck.choice(self._values),
            self._timestamp_ms(luck) + position * self._drift_ms,
            luck.choice(HEADERS),
            TOPIC,
            0,
            luck.choice((position, position, position, None)),
        )

    def _timestamp_ms(self, luck: Random) -> int:
        if self._spread == "near":
            return luck.randint(0, 12) * SECOND_MS
        if self._spread == "anywhere" and luck.random() < 1 / 4:
            return luck.choice((-30_000, -5_001, -1, FAR_FUTURE_MS, FAR_FUTURE_MS + 10_000))
        return max(0, luck.randrange(0, 45_000, 5_000) + luck.choice((0, 0, 0, 1, -1)))


@st.composite
def records(
    draw: st.DrawFn, *, values: tuple[bytes | None, ...] = VALUES, size_max: int = 30
) -> list[Record]:
    """Records of one partition; offsets count up, are missing, or come back as after a crash.

    A seed makes them, for hypothesis alone draws much the same input again and again; which of
    them come in which order it draws itself, so that it can leave out what a failure needs not.
    """
    world = _World(draw(seeds), values)
    size_min = draw(st.sampled_from((0, 4, 10, size_max)))
    indexes = draw(st.lists(st.integers(-20, 400), min_size=size_min, max_size=size_max))
    drawn: list[Record] = []
    for position, index in enumerate(indexes):
        if index < 0 and drawn:
            drawn.append(drawn[index % len(drawn)])
        else:
            drawn.append(world.record(abs(index), position))
    return drawn


class Stop(NamedTuple):
    """A batch of `size` records, and what happens after it."""

    size: int
    then: str
    """`go` on, `commit`, or `crash`: all since the last commit is lost and read again."""


plans = st.lists(
    st.builds(Stop, st.integers(0, 7), st.sampled_from(("go", "commit", "commit", "crash"))),
    max_size=12,
)
"""Ways to get through an input; what a plan leaves over is one batch and a commit."""


@st.composite
def windows(draw: st.DrawFn, *kinds: str) -> Window:
    """A window of one of these kinds."""
    kind = draw(st.sampled_from(kinds))
    grace_ms = draw(durations_ms)
    if kind == "tumbling":
        return Tumbling(size_ms=draw(positive_durations_ms), grace_ms=grace_ms)
    if kind == "hopping":
        size_ms = draw(positive_durations_ms)
        advance_ms = draw(st.sampled_from((size_ms, size_ms // 5 or 1, size_ms // 4 or 1)))
        return Hopping(size_ms=size_ms, advance_ms=advance_ms, grace_ms=grace_ms)
    if kind == "session":
        return Session(gap_ms=draw(durations_ms), grace_ms=grace_ms)
    if kind == "sliding":
        return Sliding(difference_ms=draw(durations_ms), grace_ms=grace_ms)
    return Unlimited(start_ms=draw(durations_ms))


@st.composite
def buffers(draw: st.DrawFn, *answers: str) -> BufferPolicy:
    """A buffer without bounds, or so small that it is full now and then."""
    if draw(st.booleans()):
        return BufferPolicy()
    bounds = draw(
        st.sampled_from(({"records": 0}, {"records": 1}, {"records": 3}, {"bytes": 120}, _BOTH))
    )
    return BufferPolicy.model_validate({**bounds, "when_full": draw(st.sampled_from(answers))})


_BOTH = {"records": 3, "bytes": 130}
