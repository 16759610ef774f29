"""A pipeline that was changed: what its state takes is said, what would mix up rows is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.errors import (
    StateLayoutNewer,
    StateOfAnotherPipeline,
    StateOfOtherOptions,
)
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import Tumbling, read_operator
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.operators.windows.time_windows import has_rows
from headrace.services.state.changelog import Stamp
from headrace.services.state.layout import OPERATORS_VERSION
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory
from headrace.services.state.stamps import carry_over, check_stamp, stamp_of

Operator = Mapping[str, Mapping[str, Any]]


def reorder(**options: Any) -> Operator:
    return {"reorder": {"grace": "5s", **options}}


def deduplicate(**options: Any) -> Operator:
    return {"deduplicate": {"by": "key+id", "id": "header.id", "interval": "10s", **options}}


def aggregate(**options: Any) -> Operator:
    window = {"kind": "tumbling", "size": "10s", "grace": "5s"}
    return {"aggregate": {"function": "sum", "of": "value.n", "window": window, **options}}


def suppress(**options: Any) -> Operator:
    return {"suppress": {"until": "time-limit", "limit": "10s", **options}}


def distinct(window: Mapping[str, str]) -> Operator:
    return {"distinct": {"window": window}}


TUMBLING = {"kind": "tumbling", "size": "10s", "grace": "5s"}
SESSION = {"kind": "session", "gap": "10s", "grace": "5s"}
HOPPING = {"kind": "hopping", "size": "10s", "advance": "5s", "grace": "5s"}
SLIDING = {"kind": "sliding", "difference": "10s", "grace": "5s"}
UNLIMITED = {"kind": "unlimited", "start": "0s"}
FULL = {"records": 5, "when-full": "spill"}


def stamp(*operators: Operator, pipeline: str = "p", topic: str = "raw") -> Stamp:
    spec = PipelineSpec.model_validate(
        {
            "pipeline": pipeline,
            "source": {"topic": topic},
            "operators": list(operators),
            "sink": {"topic": "cleaned"},
        }
    )
    (hop,) = spec.hops()
    return stamp_of(spec, hop)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[PartitionState]:
    state = PartitionState(tmp_path / "0", "p", RocksMemory(8 << 20), 0)
    yield state
    state.close()


def write(state: PartitionState, *operators: Operator, records: int = 0) -> None:
    """Let these operators write the state, and take in so many records of different keys."""
    spec = PipelineSpec.model_validate(
        {
            "pipeline": "p",
            "source": {"topic": "raw"},
            "operators": list(operators),
            "sink": {"topic": "cleaned"},
        }
    )
    (hop,) = spec.hops()
    state.stamp_with(stamp_of(spec, hop))
    chain = Chain(hop.operators, state.overlay.view)
    chain.process(
        Batch.of([Record(b"%d" % n, b'{"n":1}', 1_000, (), "raw", 0, n) for n in range(records)])
    )
    chain.save()
    state.reach(records, 1_000)
    state.commit(1, 0)


def test_a_new_state_takes_anything(state: PartitionState) -> None:
    assert check_stamp(state, stamp(reorder())) == []


def test_the_same_pipeline_is_no_change(state: PartitionState) -> None:
    operators = (reorder(), deduplicate(), aggregate(), suppress())
    write(state, *operators, records=3)
    assert check_stamp(state, stamp(*operators)) == []


TAKEN = [
    (reorder(), reorder(grace="1h"), "`reorder` goes on with another `grace_ms`"),
    (reorder(), reorder(late="drop"), "`reorder` goes on with another `late`"),
    (
        reorder(),
        reorder(buffer=FULL, idle="1s"),
        "`reorder` goes on with another `buffer`, `idle_ms`",
    ),
    (
        deduplicate(),
        deduplicate(interval="1s", late="drop"),
        "`deduplicate` goes on with another `interval_ms`, `late`",
    ),
    (suppress(), suppress(limit="1h"), "`suppress` goes on with another `limit_ms`"),
    (
        aggregate(),
        aggregate(window={**TUMBLING, "grace": "1h"}, retention="2h"),
        "`aggregate` goes on with another `retention_ms`, `window`",
    ),
    (
        distinct(SESSION),
        distinct({**SESSION, "gap": "1h"}),
        "`distinct` goes on with another `window`",
    ),
    (
        {"filter": {"where": "value.n > 1"}},
        {"filter": {"where": "value.n > 2"}},
        "`filter` goes on with another `where`",
    ),
    (
        deduplicate(store="ids"),
        deduplicate(store="ids", name="once"),
        "`once` goes on with another `name`",
    ),
]


@pytest.mark.parametrize(("before", "after", "said"), TAKEN)
def test_a_change_that_keeps_the_meaning_of_rows_is_taken_and_said(
    state: PartitionState, before: Operator, after: Operator, said: str
) -> None:
    write(state, before, records=2)
    assert check_stamp(state, stamp(after)) == [said]
    # And it is one: who goes on does not fall over what stands there.
    write(state, after, records=2)


COUNT = aggregate(function="count", of=None)


def stamped(state: PartitionState, operators: list[Operator], **noted: Any) -> None:
    """Note in a state the operators of another version, the first of which had more options."""
    other = stamp(*operators)
    state.stamp_with(other._replace(operators=[other.operators[0] | noted, *other.operators[1:]]))


def go_on(state: PartitionState, now: Stamp) -> list[str]:
    """Begin with a state as a task does."""
    changes = check_stamp(state, now)
    carry_over(state, now)
    return changes


def test_an_option_that_this_version_does_not_know_is_said(state: PartitionState) -> None:
    stamped(state, [deduplicate()], sealed=True)
    now = stamp(deduplicate())
    assert go_on(state, now) == ["`deduplicate` goes on with another `sealed`"]


@pytest.mark.parametrize(
    ("before", "noted", "after"),
    [
        ([reorder(), deduplicate()], {"sealed": True}, [deduplicate()]),
        ([reorder(), deduplicate()], {"kind": "seal"}, [deduplicate()]),
        ([COUNT, suppress()], {"sealed": True}, [COUNT, suppress()]),
    ],
)
def test_an_operator_of_a_later_version_that_may_hold_records_is_refused(
    state: PartitionState,
    before: list[Operator],
    noted: dict[str, object],
    after: list[Operator],
) -> None:
    stamped(state, before, **noted)
    (name,) = before[0]
    sentence = f"`{name}` had options when this state was written that this version does not take; "
    with pytest.raises(StateOfOtherOptions, match=sentence):
        go_on(state, stamp(*after))


REFUSED = [
    (
        deduplicate(),
        deduplicate(by="key", id=None),
        (
            "`by` of `deduplicate` was key+id and is key now;"
            " `id` of `deduplicate` was header.id and is None now"
        ),
    ),
    (
        aggregate(),
        aggregate(function="max"),
        "`function` of `aggregate` was sum and is max now",
    ),
    (
        aggregate(),
        aggregate(of="value.m"),
        "`of` of `aggregate` was value.n and is value.m now",
    ),
    (
        aggregate(),
        aggregate(window=None),
        "`aggregate` has no window now",
    ),
    (
        aggregate(window=None),
        aggregate(),
        "`aggregate` has a window now, and had none",
    ),
    (
        aggregate(),
        aggregate(window={**TUMBLING, "size": "20s"}),
        "`size` of the window of `aggregate` was 10000 and is 20000 now",
    ),
    (
        aggregate(window=HOPPING),
        aggregate(window={**HOPPING, "advance": "1s"}),
        "`advance` of the window of `aggregate` was 5000 and is 1000 now",
    ),
    (
        aggregate(window=SLIDING),
        aggregate(window={**SLIDING, "difference": "1s"}),
        "`difference` of the window of `aggregate` was 10000 and is 1000 now",
    ),
    (
        aggregate(window=UNLIMITED),
        aggregate(window={**UNLIMITED, "start": "1s"}),
        "`start` of the window of `aggregate` was 0 and is 1000 now",
    ),
    (
        distinct(TUMBLING),
        distinct(SESSION),
        (
            "`kind` of the window of `distinct` was tumbling and is session now;"
            " `size` of the window of `distinct` was 10000 and is None now"
        ),
    ),
    (
        {"table": {"store": "rows"}},
        deduplicate(store="rows"),
        "the store `rows` was a table's and is a deduplicate's now",
    ),
]


@pytest.mark.parametrize(("before", "after", "problem"), REFUSED)
def test_a_change_that_alters_the_meaning_of_rows_is_refused(
    state: PartitionState, before: Operator, after: Operator, problem: str
) -> None:
    write(state, before)
    with pytest.raises(StateOfOtherOptions) as refused:
        check_stamp(state, stamp(after))
    assert str(refused.value) == (
        f"{problem}, which the state cannot follow;"
        " change it back, or begin anew with `headrace reset`"
    )
    assert check_stamp(state, stamp(before)) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (reorder(), deduplicate(), "`reorder` is gone and still holds 2 records"),
        (suppress(), reorder(), "`suppress` is gone and still holds 2 records"),
        (reorder(), reorder(store="other"), "`reorder` is gone and still holds 2 records"),
        (reorder(), reorder(grace="0s"), "`reorder` waits no more and still holds 2 records"),
    ],
)
def test_an_operator_that_holds_records_stays_until_they_have_left(
    state: PartitionState, before: Operator, after: Operator, problem: str
) -> None:
    write(state, before, records=2)
    with pytest.raises(StateOfOtherOptions, match=problem):
        check_stamp(state, stamp(after))


FINAL: Operator = {"suppress": {"until": "window-closes"}}
RISING: Operator = {"filter": {"where": "value >= 1"}}
OTHER = aggregate(name="other")


@pytest.mark.parametrize(
    "after", [(aggregate(), RISING, FINAL), (aggregate(retention="1h"), FINAL)], ids=str
)
def test_results_that_stood_in_a_suppress_go_with_their_windows(
    state: PartitionState, after: tuple[Operator, ...]
) -> None:
    write(state, aggregate(), FINAL, records=2)
    windows = state.overlay.view("aggregate")
    assert not has_rows(windows)
    check_stamp(state, stamp(*after))
    carry_over(state, stamp(aggregate(), FINAL))
    assert not has_rows(windows), "nothing has changed"
    carry_over(state, stamp(*after))
    ends = windows.prefix + b"\x01", windows.prefix + b"\x02"
    assert [(key[-1:], row[8:]) for key, row in windows.range(*ends)] == [
        (b"0", b"1"),
        (b"1", b"1"),
    ]
    # Rows that are there are kept to.
    write(state, aggregate(), FINAL, records=2)
    assert [row[8:] for _, row in windows.range(*ends)] == [b"2", b"2"]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ((aggregate(), FINAL), (OTHER, FINAL), "2 results that `other` did not make"),
        ((aggregate(), RISING, FINAL), (OTHER, FINAL), "2 results that `other` did not make"),
        ((aggregate(), FINAL), (OTHER, RISING, FINAL), None),
        ((aggregate(), RISING, FINAL), (aggregate(), FINAL), None),
    ],
)
def test_windows_do_not_go_on_from_what_others_left(
    state: PartitionState,
    before: tuple[Operator, ...],
    after: tuple[Operator, ...],
    says: str | None,
) -> None:
    write(state, *before, records=2)
    with pytest.raises(StateOfOtherOptions, match=says) if says else nullcontext():
        check_stamp(state, stamp(*after))


@pytest.mark.parametrize("before", [reorder(), suppress()])
def test_an_operator_that_holds_no_record_may_go(state: PartitionState, before: Operator) -> None:
    write(state, before)
    said = check_stamp(state, stamp({"table": {}}))
    assert "`table` is new, and begins without state" in said


def test_options_that_did_nothing_may_be_removed_from_a_file(state: PartitionState) -> None:
    window = Tumbling(size_ms=10_000, grace_ms=0).model_dump(mode="json")
    now = stamp({"aggregate": {"function": "mine:longest"}}, suppress())
    longest, held = now.operators
    before = now._replace(operators=[longest | {"of": "value.n"}, held | {"window": window}])
    assert [read_operator(one).name for one in before.operators] == ["aggregate", "suppress"]
    state.stamp_with(before)
    state.commit(1, 0)
    assert check_stamp(state, now) == [
        "`aggregate` goes on with another `of`",
        "`suppress` goes on with another `window`",
    ]


def test_state_of_another_pipeline_is_refused(state: PartitionState) -> None:
    write(state, reorder())
    with pytest.raises(StateOfOtherOptions, match="the source was `raw` and is `other` now"):
        check_stamp(state, stamp(reorder(), topic="other"))
    with pytest.raises(StateOfAnotherPipeline, match="belongs to pipeline `p`, not `q`"):
        check_stamp(state, stamp(reorder(), pipeline="q"))
    state.stamp_with(stamp(reorder())._replace(layout=OPERATORS_VERSION + 1))
    with pytest.raises(StateLayoutNewer, match="upgrade headrace"):
        check_stamp(state, stamp(reorder()))
