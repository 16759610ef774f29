"""The changelog is the state: whoever lost the folder goes on from the changes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given
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
from headrace.contracts.record import Record, offset_of
from headrace.contracts.topology import with_names
from headrace.services.operators.operator import Batch
from headrace.services.state.changelog import (
    ABOUT,
    ChangelogRecord,
    Position,
    Restoration,
    put_position,
    records_of,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.store import Store
from tests.properties import strategies
from tests.properties.drive import PIPELINE, Drive, chain_of, run
from tests.properties.strategies import MORE, Stop

NUMBERS = (b"1", b"2", b"30", None)
SPILL = BufferPolicy(records=2, when_full="spill")
EMIT_EARLY = BufferPolicy(records=2, when_full="emit-early")
REORDER = ReorderPolicy(grace_ms=10_000)
DEDUPLICATE = DeduplicatePolicy(by="key+id", id="header.id", interval_ms=10_000)
WAIT = SuppressPolicy(until="time-limit", limit_ms=5_000)


def _final(window: Window, buffer: BufferPolicy) -> tuple[AnyOperator, ...]:
    return (
        AggregatePolicy(function="count", window=window),
        SuppressPolicy(until="window-closes", window=window, buffer=buffer),
    )


CHAINS: tuple[tuple[AnyOperator, ...], ...] = (
    (REORDER, DEDUPLICATE, WAIT),
    (ReorderPolicy(grace_ms=5_000, buffer=SPILL), DEDUPLICATE),
    (ReorderPolicy(grace_ms=15_000, buffer=EMIT_EARLY),),
    (TablePolicy(), FilterPolicy(where="value >= 2"), WAIT),
    (TablePolicy(), WAIT.model_copy(update={"buffer": SPILL})),
    (WAIT.model_copy(update={"buffer": EMIT_EARLY}),),
    (DEDUPLICATE, DistinctPolicy(window=Tumbling(size_ms=5_000, grace_ms=0))),
    (DistinctPolicy(window=Session(gap_ms=5_000, grace_ms=5_000)),),
    _final(Tumbling(size_ms=5_000, grace_ms=5_000), BufferPolicy()),
    _final(Hopping(size_ms=10_000, advance_ms=5_000, grace_ms=0), SPILL),
    _final(Session(gap_ms=5_000, grace_ms=0), SPILL),
    _final(Sliding(difference_ms=5_000, grace_ms=5_000), BufferPolicy()),
    (AggregatePolicy(function="sum"), FilterPolicy(where="value >= 2"), WAIT),
    (AggregatePolicy(function="last", window=Unlimited(start_ms=5_000)),),
)
chains = st.sampled_from(CHAINS).map(with_names)


@pytest.fixture(scope="module", autouse=True)
def _drop_often() -> Iterator[None]:
    """Released items are swept away after a few more: a sweep is in no changelog."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.services.operators.sweep.SWEEP_AFTER_ROWS", 3)
        yield


class Changelog:
    """The changes of one partition, as Kafka keeps them."""

    def __init__(self, *, compacted: bool) -> None:
        """A compacted one forgets all but the latest change of each row."""
        self._compacted = compacted
        self._records: list[Record] = []

    def append(self, records: Iterable[ChangelogRecord]) -> None:
        """The rows of one transaction."""
        for key, row in records:
            offset = self._records[-1].offset + 1 if self._records else 0  # type: ignore[operator]
            self._records.append(Record(key, row, 0, (), "changelog", 0, offset))
        if self._compacted:
            latest = {record.key: record for record in self._records}
            self._records = sorted(latest.values(), key=offset_of)

    def rebuilt(self) -> Store:
        """A new store with all that is kept here."""
        store = MemoryStore()
        restoration = Restoration(Overlay(store, PIPELINE))
        for first in range(0, len(self._records), 3):
            restoration.take(self._records[first : first + 3])
        assert restoration.left_open() == []
        return store


class WithoutFolder(Drive):
    """A run in which every crash loses the state folder too."""

    def __init__(
        self, policies: Sequence[AnyOperator], records: Sequence[Record], changelog: Changelog
    ) -> None:
        """No row was read yet."""
        self._changelog = changelog
        self._names = names_of(policies)
        super().__init__(chain_of(policies), records, MemoryStore())

    def _start(self) -> None:
        self._store = self._changelog.rebuilt()
        super()._start()

    def commit(self) -> None:
        """Bring the changes into the changelog, as the transaction does, then into the store."""
        self.subject.save()
        put_position(self._overlay.view(ABOUT), Position(0, 0))
        self._changelog.append(records_of(self._overlay))
        super().commit()

    def rows(self) -> dict[tuple[str, bytes], bytes]:
        """All rows of operators that the store has now."""
        return rows_of(self._store, self._names)


def rows_of(store: Store, names: Iterable[str]) -> dict[tuple[str, bytes], bytes]:
    """The rows of some operators; numbers of stores differ where they were opened in turn."""
    overlay = Overlay(store, PIPELINE)
    return {
        (name, key.removeprefix(view.prefix)): row
        for name, view in ((name, overlay.view(name)) for name in names)
        for key, row in view.range(view.prefix, view.prefix + b"\xff")
    }


def names_of(policies: Sequence[AnyOperator]) -> list[str]:
    """The stores of a chain."""
    return [policy.store or policy.kind for policy in policies]


@MORE
@given(chains, strategies.records(values=NUMBERS), strategies.plans, st.booleans())
def test_a_lost_folder_changes_nothing_that_leaves(
    policies: tuple[AnyOperator, ...],
    records: list[Record],
    plan: list[Stop],
    compacted: bool,  # noqa: FBT001 - hypothesis passes by position
) -> None:
    changelog = Changelog(compacted=compacted)
    outcome = WithoutFolder(policies, records, changelog).run(plan)
    assert outcome == run(chain_of(policies), records, plan)


@MORE
@given(chains, strategies.records(values=NUMBERS), strategies.plans)
def test_every_row_that_lives_is_in_the_changelog(
    policies: tuple[AnyOperator, ...], records: list[Record], plan: list[Stop]
) -> None:
    changelog = Changelog(compacted=True)
    drive = WithoutFolder(policies, records, changelog)
    drive.run([stop for stop in plan if stop.then != "crash"])
    rebuilt = rows_of(changelog.rebuilt(), names_of(policies))
    # Dropped rows come back until the next drop takes them; no row is missing, or older.
    assert drive.rows().items() <= rebuilt.items()


@given(chains, strategies.records(values=NUMBERS), st.integers(0, 30))
def test_a_dry_run_leaves_the_state_as_it_was(
    policies: tuple[AnyOperator, ...], records: list[Record], first: int
) -> None:
    store = MemoryStore()
    run(chain_of(policies), records[:first], store=store)
    before = list(store.range(b"", b"\xff"))
    overlay = Overlay(store, PIPELINE)
    subject = chain_of(policies)(overlay)
    subject.process(Batch.of(records[first:]))
    subject.save()
    overlay.discard()
    assert list(store.range(b"", b"\xff")) == before
