"""A changelog that forgets its beginning forgets nothing that counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt
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
from headrace.contracts.topology import with_names
from headrace.contracts.window import WindowBounds, window_header
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch, Step
from headrace.services.state.changelog import (
    ABOUT,
    CHANGELOG,
    Position,
    Restoration,
    Stamp,
    put_position,
    put_stamp,
    read_position,
    read_stamp,
    records_of,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.purging import Purging
from tests.properties import strategies
from tests.properties.drive import PIPELINE, Drive, chain_of, run
from tests.properties.strategies import MORE, TOPIC, Stop
from tests.properties.test_chain import event_chains, final_results, table_chains

NUMBERS = (b"1", b"2", b"30", None)
SPILL = BufferPolicy(records=2, when_full="spill")
EMIT_EARLY = BufferPolicy(records=2, when_full="emit-early")
DEDUPLICATE = DeduplicatePolicy(by="key+id", id="header.id", interval_ms=5_000)
HARDLY_ANY = FilterPolicy(where='key == "b"')
MINUTE = Tumbling(size_ms=5_000, grace_ms=5_000)


def _aggregate(window: Window, retention_ms: int | None = None) -> AggregatePolicy:
    return AggregatePolicy(function="sum", window=window, retention_ms=retention_ms)


def _final(window: Window, buffer: BufferPolicy | None = None) -> SuppressPolicy:
    buffer = buffer or BufferPolicy()
    return SuppressPolicy(until="window-closes", window=window, buffer=buffer)


SESSION = Session(gap_ms=5_000, grace_ms=5_000)
SLIDING = Sliding(difference_ms=5_000, grace_ms=5_000)
HOPPING = Hopping(size_ms=10_000, advance_ms=5_000, grace_ms=0)
BY_TIME: tuple[tuple[AnyOperator, ...], ...] = (
    (ReorderPolicy(grace_ms=10_000), DEDUPLICATE),
    (ReorderPolicy(grace_ms=5_000, buffer=SPILL),),
    (ReorderPolicy(grace_ms=15_000, buffer=EMIT_EARLY),),
    (DEDUPLICATE,),
    (DEDUPLICATE.model_copy(update={"interval_ms": 0}),),
    (DistinctPolicy(window=MINUTE),),
    (DistinctPolicy(window=SESSION),),
    (_aggregate(MINUTE, retention_ms=30_000),),
    (_aggregate(HOPPING),),
    (_aggregate(SESSION),),
    (_aggregate(SLIDING),),
    (SuppressPolicy(until="time-limit", limit_ms=5_000),),
    (SuppressPolicy(until="time-limit", limit_ms=5_000, buffer=SPILL),),
    (SuppressPolicy(until="time-limit", limit_ms=15_000, buffer=EMIT_EARLY),),
    (_aggregate(MINUTE), _final(MINUTE)),
    (_aggregate(HOPPING), _final(HOPPING, SPILL)),
    (_aggregate(SESSION), _final(SESSION, SPILL)),
    (_aggregate(SLIDING), _final(SLIDING)),
)
"""Chains all of whose rows are over some day, and whose operators see time move on."""
BY_WALKING: tuple[tuple[AnyOperator, ...], ...] = (
    (DEDUPLICATE, TablePolicy(), FilterPolicy(where="value >= 2")),
    (DEDUPLICATE, AggregatePolicy(function="count")),
    (DEDUPLICATE, AggregatePolicy(function="last", window=Unlimited(start_ms=5_000))),
    (TablePolicy(), SuppressPolicy(until="time-limit", limit_ms=5_000, buffer=SPILL)),
    (DEDUPLICATE, HARDLY_ANY, DistinctPolicy(window=MINUTE)),
    (_final(MINUTE),),
    (_final(MINUTE, SPILL),),
)
"""Chains with rows that stay, with rows that may stay, and with operators that see little time."""
EVERY = tuple(map(with_names, BY_TIME + BY_WALKING))


@pytest.fixture(scope="module", autouse=True)
def _soon() -> Iterator[None]:
    """A few rows are worth a sweep, and a few records are worth a walk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.services.operators.sweep.SWEEP_AFTER_ROWS", 3)
        patch.setattr("headrace.services.state.purging.WALK_FROM_RECORDS", 4)
        yield


class Changelog:
    """One partition, as Kafka keeps it: records at offsets, compacted, the first ones deleted."""

    def __init__(self) -> None:
        """No row was written yet."""
        self.first = self.end = 0
        self.records: dict[bytes, Record] = {}

    def append(self, rows: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append the rows of one transaction and its marker; return the end of the records."""
        for key, row in rows:
            self.records.pop(key, None)
            self.records[key] = Record(key, row, 0, (), "changelog", 0, self.end)
            self.end += 1
        self.end += 1
        return self.end - 1

    def restored(self) -> MemoryStore:
        """A store with all that is kept here."""
        store = MemoryStore()
        Restoration(Overlay(store, PIPELINE)).take(self.records.values())
        return store

    def delete_before(self, offset: int) -> None:
        """Delete records as DeleteRecords does."""
        assert offset <= self.end
        self.first = max(self.first, offset)
        self.records = {
            key: one for key, one in self.records.items() if (one.offset or 0) >= self.first
        }


class Subject:
    """A chain, and what is purged of its changelog."""

    def __init__(self, policies: Sequence[AnyOperator], overlay: Overlay) -> None:
        """Both go on where the overlay's store is."""
        self.chain = Chain(policies, overlay.view)
        reached = read_position(overlay.view(ABOUT))
        self.chain.lateness.time_ms = NO_TIME_MS if reached is None else reached.time_ms
        end = overlay.position(CHANGELOG) or 0
        self.purging = Purging(overlay, policies, self.chain.operators, end)
        self.save = self.chain.save

    def skip(self, records: Sequence[Record]) -> None:
        """Begin anywhere."""

    def process(self, batch: Batch) -> Step:
        """Decide about every record of the batch."""
        return self.chain.process(batch)

    def held(self) -> int:
        """How many records are held now, by all operators."""
        return sum(operator.counts.held for operator in self.chain.operators)

    def imbalance(self) -> int:
        """How many records were lost or invented, by all operators."""
        return sum(map(abs, self.chain.imbalance().values()))


class Purged(Drive):
    """A run that purges whenever it may, and loses its folder in every crash."""

    def __init__(self, policies: Sequence[AnyOperator], records: Sequence[Record]) -> None:
        """No row was read yet."""
        self.changelog = Changelog()
        self.subject: Subject
        self._policies = policies
        super().__init__(self._build, records, MemoryStore())

    @property
    def overlay(self) -> Overlay:
        """The view of the store that the operators have now."""
        return self._overlay

    def _build(self, overlay: Overlay) -> Subject:
        return Subject(self._policies, overlay)

    def _start(self) -> None:
        self._store = self.changelog.restored()
        super()._start()
        assert self.subject.purging.purged >= self.changelog.first

    def reopen(self, policies: Sequence[AnyOperator]) -> None:
        """Go on with other policies, over what the changelog has."""
        self._policies = policies
        self._start()

    def commit(self) -> None:
        """As a task does it."""
        subject, overlay = self.subject, self._overlay
        subject.save()
        time_ms = subject.chain.lateness.time_ms
        put_position(overlay.view(ABOUT), Position(self.outcome.taken, time_ms))
        subject.purging.before_commit(time_ms, may_purge=True)
        end = self.changelog.append(records_of(overlay))
        overlay.commit({CHANGELOG: end})
        subject.purging.after_commit(end)
        self.changelog.delete_before(subject.purging.purged)
        self._committed = self.outcome.copy()


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Records that stand in windows, some of which end long after, or never."""
    luck = strategies.chance(draw(strategies.seeds))
    return [in_window(one, luck) for one in draw(strategies.records(values=NUMBERS, size_max=60))]


def in_window(record: Record, luck: Random) -> Record:
    """The record, as a result of a window that ends near its time, or does not."""
    start_ms = record.timestamp_ms - record.timestamp_ms % 5_000
    end_ms = start_ms + luck.choice((5_000,) * 8 + (60_000, 1 << 62))
    header = window_header(WindowBounds("tumbling", start_ms, end_ms))
    return record._replace(headers=(*record.headers, header))


def long_stream(seed: int, count: int = 1_000) -> list[Record]:
    """A stream in which a life spans a few commits; time nearly stands still for what is let by."""
    luck = Random(seed)
    made = []
    for index in range(count):
        key = luck.choice((b"a", b"c", b"ac", b"", b"a\x00", b"\xff") * 5 + (b"b", None))
        step_ms = 20 if key == b"b" else 500
        at_ms = max(0, index * step_ms - luck.choice((0, 0, 0, 500, 3_000, 6_000, 9_000, 40_000)))
        headers = (("id", b"%d" % luck.randrange(2)),)
        made.append(Record(key, luck.choice(NUMBERS), at_ms, headers, TOPIC, 0, index))
    return [in_window(one, luck) for one in made]


chains = st.one_of(st.sampled_from(EVERY), event_chains(), final_results(), table_chains())


@MORE
@given(chains, streams(), strategies.plans)
def test_purges_change_no_output(
    policies: tuple[AnyOperator, ...], records: list[Record], plan: list[Stop]
) -> None:
    assert Purged(policies, records).run(plan) == run(chain_of(policies), records, plan)


@pytest.mark.parametrize("policies", EVERY, ids=lambda policies: "-".join(p.name for p in policies))
def test_a_changelog_stays_short_and_what_leaves_is_the_same(
    policies: tuple[AnyOperator, ...],
) -> None:
    records = long_stream(len(policies))
    luck = Random(1)
    plan = [Stop(luck.randrange(6), luck.choice(("commit",) * 3 + ("crash",))) for _ in range(500)]
    drive = Purged(policies, records)
    assert drive.run(plan) == run(chain_of(policies), records, plan)
    changelog = drive.changelog
    assert changelog.end - changelog.first < 250
    assert len(changelog.records) < 100


def test_rows_about_the_whole_state_and_header_rows_stay() -> None:
    shorter, longer = (
        with_names((DistinctPolicy(window=Session(gap_ms=gap_ms, grace_ms=20_000)),))
        for gap_ms in (5_000, 9_000)
    )
    records = long_stream(1)
    stamp = Stamp(1, PIPELINE, TOPIC, [])
    drive = Purged(shorter, records[:500])
    put_stamp(drive.overlay.view(ABOUT), stamp)
    drive.run([Stop(5, "commit")] * 100)
    assert drive.changelog.first > 500
    store = drive.changelog.restored()
    assert read_stamp(Overlay(store, PIPELINE).view(ABOUT)) == stamp
    # Sessions stand in segments whose length goes back to the gap that the pipeline began with.
    never_purged = MemoryStore()
    run(chain_of(shorter), records[:500], store=never_purged)
    expected = run(chain_of(longer), records[500:], store=never_purged)
    assert run(chain_of(longer), records[500:], store=store) == expected


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [
        (ReorderPolicy(grace_ms=20_000), ReorderPolicy(grace_ms=5_000)),
        (
            SuppressPolicy(until="time-limit", limit_ms=20_000),
            SuppressPolicy(until="time-limit", limit_ms=5_000),
        ),
        (
            AggregatePolicy(function="count", window=Tumbling(size_ms=1_000, grace_ms=20_000)),
            AggregatePolicy(function="count", window=Tumbling(size_ms=1_000, grace_ms=5_000)),
        ),
    ],
    ids=lambda policy: policy.kind,
)
def test_records_that_are_due_by_a_shorter_wait_stay_until_they_have_left(
    longer: AnyOperator, shorter: AnyOperator
) -> None:
    records = [Record(b"%d" % at, b"1", at * 1_000, (), TOPIC, 0, at) for at in range(40)]
    last = Record(b"last", b"1", 100_000, (), TOPIC, 0, 40)
    drive = Purged(_with_final(longer), records)
    drive.run([Stop(1, "commit")] * len(records))
    held = drive.subject.held()
    assert drive.changelog.first > 0
    # As at the start of a task, which commits its name before there is a record.
    drive.reopen(_with_final(shorter))
    drive.commit()
    overlay = Overlay(drive.changelog.restored(), PIPELINE)
    step = Subject(_with_final(shorter), overlay).process(Batch.of([last]))
    assert len(step.forwarded.records) == held


def _with_final(policy: AnyOperator) -> tuple[AnyOperator, ...]:
    """The operator, and behind windows one that holds their results."""
    if isinstance(policy, AggregatePolicy) and isinstance(policy.window, Tumbling):
        return with_names((policy, _final(policy.window)))
    return with_names((policy,))


def test_a_history_that_cannot_be_read_is_damage() -> None:
    (policies,) = (one for one in EVERY if one == with_names((DEDUPLICATE,)))
    for row in (b"{", b"[]", b"{}", b'{"stores": ["deduplicate"], "samples": [[1]]}'):
        overlay = Overlay(MemoryStore(), PIPELINE)
        about = overlay.view(ABOUT)
        about.put_many({about.prefix + b"history": row})
        with pytest.raises(StateCorrupt, match="what is remembered of purges cannot be read"):
            Subject(policies, overlay)
