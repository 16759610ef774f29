"""Decide which changes of a pipeline its existing state can follow.

After a longer grace or interval, other bounds or another late policy, the rows still mean what they
meant, and the operators go on from them. Other changes would give rows another meaning, or leave
records held for ever by an operator that is gone. Those are refused before anything is read, with
the way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from headrace.contracts.errors import (
    StateLayoutNewer,
    StateOfAnotherPipeline,
    StateOfOtherOptions,
    StateTruncated,
)
from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import (
    OPERATOR_KINDS,
    AnyOperator,
    MergePolicy,
    ReorderPolicy,
    read_operator,
)
from headrace.contracts.selector_text import AGGREGATE_FUNCTIONS
from headrace.services.operators.aggregate import Aggregate
from headrace.services.operators.chain import build_operator
from headrace.services.operators.deduplicate import Deduplicate
from headrace.services.operators.distinct import Distinct
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.merge import Merge
from headrace.services.operators.operator import Operator
from headrace.services.operators.windows.held_windows import give_back, may_share
from headrace.services.operators.windows.time_windows import has_rows
from headrace.services.state.changelog import ABOUT, Stamp
from headrace.services.state.layout import ONE_LENGTH_VERSION, OPERATORS_VERSION
from headrace.services.state.partition import PartitionState, is_another

_SHAPE = {
    "deduplicate": ("by", "id"),
    "distinct": (),
    "aggregate": ("function", "of"),
    "suppress": ("until",),
}
"""Options that decide how rows are keyed, or what is in them."""
_WINDOW_SHAPE = ("kind", "size_ms", "advance_ms", "difference_ms", "start_ms")
"""Options of a window that decide which row a record goes to; gap and grace may change."""
_SEGMENTED = (Aggregate, Deduplicate, Distinct)
_HOLDING = ("reorder", "merge", "suppress")


def stamp_of(
    spec: PipelineSpec,
    hop: Hop,
    topic_id: str | None = None,
    partitions: int | None = None,
    spread_over: int | None = None,
) -> Stamp:
    """Make the stamp of a hop's state; of its topics, with what is known."""
    operators = [policy.model_dump(mode="json") for policy in hop.operators]
    known = topic_id, partitions, spread_over
    return Stamp(ONE_LENGTH_VERSION, spec.pipeline, hop.topic, operators, *known)


def layout_of(operators: Sequence[Operator]) -> int:
    """Return the version of the rows of opened operators, for a stamp."""
    with_segments = (one for one in operators if isinstance(one, _SEGMENTED))
    has_formers = any(one.has_formers for one in with_segments)
    return OPERATORS_VERSION if has_formers else ONE_LENGTH_VERSION


def check_stamp(state: PartitionState, now: Stamp) -> list[str]:
    """Refuse state that cannot go on with these options; return the changes that it accepts."""
    before = state.stamp
    if before is None:
        if state.position is not None:
            raise _without_beginning(now)
        return []
    check_layout(before)
    if before.pipeline != now.pipeline:
        message = (
            f"this state belongs to pipeline `{before.pipeline}`, not `{now.pipeline}`;"
            " give each pipeline its own name, or begin anew with `headrace reset`"
        )
        raise StateOfAnotherPipeline(message)
    if before.topic != now.topic:
        problem = f"the source was `{before.topic}` and is `{now.topic}` now"
        raise _refused(problem)
    _check_topics(before, now)
    problems = list(_problems(state, before, now))
    if problems:
        raise _refused("; ".join(problems))
    return list(_taken(before, now))


def _without_beginning(now: Stamp) -> StateTruncated:
    """Return the refusal of a state whose first commits are gone: each first one has a stamp."""
    return StateTruncated(
        f"the changelog of `{now.topic}` lacks its beginning, as if it was deleted and made anew"
        " while an instance wrote to it; bring the topic back, or begin anew with `headrace reset`"
    )


def check_layout(stamp: Stamp) -> None:
    """Refuse rows that a newer program wrote."""
    if stamp.layout > OPERATORS_VERSION:
        message = (
            f"this state has layout {stamp.layout}, this program reads up to {OPERATORS_VERSION};"
            " upgrade headrace, or begin anew with `headrace reset`"
        )
        raise StateLayoutNewer(message)


def check_source(topic: str, before_id: str | None, now_id: str | None) -> None:
    """Refuse a topic that has the name of the one that a state has read, and is another."""
    if is_another(before_id, now_id):
        message = (
            f"`{topic}` was deleted and made anew since this state was written, so its offsets"
            " mean other records now; begin anew with `headrace reset`, which reads all that is"
            " there, or bring the topic back"
        )
        raise StateTruncated(message)


def check_changelog(topic: str, before_id: str | None, now_id: str | None) -> None:
    """Refuse a changelog that has the name of the one that a state is written to."""
    if is_another(before_id, now_id):
        message = (
            f"the changelog `{topic}` was deleted and made anew while this instance wrote to it, so"
            " it lacks what was written before; bring the topic back, or begin anew with `headrace"
            " reset`"
        )
        raise StateTruncated(message)


def _check_topics(before: Stamp, now: Stamp) -> None:
    """Refuse topics that have the same name, and are not what they were."""
    check_source(now.topic, before.topic_id, now.topic_id)
    if None not in {before.partitions, now.partitions} and before.partitions != now.partitions:
        message = (
            f"`{now.topic}` had {before.partitions} partitions when this state was written, and has"
            f" {now.partitions} now: keys come in other partitions than those that know them; begin"
            " anew with `headrace reset`, or bring the records to a new topic"
        )
        raise StateOfOtherOptions(message)
    if None not in {before.spread_over, now.spread_over} and before.spread_over != now.spread_over:
        message = (
            f"records were spread by id over {before.spread_over} partitions, and the repartition"
            f" topic has {now.spread_over} now: an id comes in another partition than the one that"
            " knows it; begin anew with `headrace reset`"
        )
        raise StateOfOtherOptions(message)


def carry_over(state: PartitionState, now: Stamp) -> None:
    """Move rows to where the changed operators look for them, once `check_stamp` has accepted."""
    before = state.stamp
    if before is None:
        return
    stores = {policy["store"] for policy in now.operators}
    for store, held_by in _sharing(before) - _sharing(now):
        if store in stores:
            give_back(state.overlay.view(store), state.overlay.view(held_by))


def _sharing(stamp: Stamp) -> set[tuple[str, str]]:
    """Return the stores of windows whose results another store alone may hold, with that store."""
    return {
        (one["store"], behind["store"])
        for one, behind in pairwise(stamp.operators)
        if (one["kind"], behind["kind"]) == ("aggregate", "suppress")
        and may_share(_read(one), _read(behind))
    }


def _read(noted: dict[str, Any]) -> AnyOperator:
    """Return a policy that a stamp has; refuse one with options of another version."""
    try:
        return read_operator(noted)
    except ValueError as error:
        message = (
            f"`{noted['name']}` had options when this state was written that this version does not"
            " take; start it with the version that wrote it, or begin anew with `headrace reset`"
        )
        raise StateOfOtherOptions(message) from error


def _refused(problem: str) -> StateOfOtherOptions:
    return StateOfOtherOptions(
        f"{problem}, which the state cannot follow;"
        " change it back, or begin anew with `headrace reset`"
    )


def _problems(state: PartitionState, before: Stamp, now: Stamp) -> Iterator[str]:
    stores = {policy["store"]: policy for policy in now.operators}
    for old in before.operators:
        new = stores.get(old["store"])
        if new is None:
            held = _held(state, old)
            if held:
                yield f"`{old['name']}` is gone and still holds {held} records"
        elif new["kind"] != old["kind"]:
            yield f"the store `{old['store']}` was a {old['kind']}'s and is a {new['kind']}'s now"
        elif _waits_no_more(new) and (held := _held(state, old)):
            yield f"`{new['name']}` waits no more and still holds {held} records"
        else:
            yield from _other_shape(old, new)
    yield from _of_another(state, before, now)
    known = {old["store"] for old in before.operators}
    for store in stores.keys() - known:
        if _has_rows(state, store):
            name = stores[store]["name"]
            yield f"`{name}` is new, and its store `{store}` has rows of an operator that is gone"


def _of_another(state: PartitionState, before: Stamp, now: Stamp) -> Iterator[str]:
    """Yield the windows that would go on from results which other windows left in a suppress."""
    olds = {old["store"]: old for old in before.operators}
    for store, held_by in _sharing(now):
        old = olds.get(held_by)
        if old is None or _made_by(before, held_by) == store or has_rows(state.overlay.view(store)):
            continue
        if held := _held(state, old):
            yield f"`{old['name']}` still holds {held} results that `{store}` did not make"


def _made_by(stamp: Stamp, held_by: str) -> str | None:
    """Return the store of the windows whose results a suppress gets, None for others' windows."""
    made_by = None
    for policy in stamp.operators:
        if policy["store"] == held_by:
            return made_by
        if policy["kind"] == "aggregate":
            made_by = policy["store"]
    return None


def _has_rows(state: PartitionState, store: str) -> bool:
    view = state.overlay.view(store)
    return any(True for _ in view.range(view.prefix, view.prefix + b"\xff"))


def _waits_no_more(policy: dict[str, Any]) -> bool:
    """Return whether it is a reorder without grace, which has no state and releases nothing."""
    return bool(policy["kind"] == "reorder" and policy["grace_ms"] == 0)


def _held(state: PartitionState, old: dict[str, Any]) -> int:
    if old["kind"] in OPERATOR_KINDS and old["kind"] not in _HOLDING:
        return 0
    policy, view = _read(old), state.overlay.view(old["store"])
    if isinstance(policy, ReorderPolicy | MergePolicy):
        # A merge reads the rows of a reorder as well.
        return Merge(policy, view, Lanes(state.overlay.view(ABOUT))).counts.held
    return build_operator(policy, view).counts.held


def _other_shape(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    old, new = _shaping(old), _shaping(new)
    for option in _SHAPE.get(old["kind"], ()):
        if old[option] != new[option]:
            yield f"`{option}` of `{new['name']}` was {old[option]} and is {new[option]} now"
    before, after = old.get("window"), new.get("window")
    if before is None and after is None:
        return
    if before is None or after is None:
        yield f"`{new['name']}` has {'no window now' if before else 'a window now, and had none'}"
        return
    for option in _WINDOW_SHAPE:
        if before.get(option) != after.get(option):
            yield (
                f"`{option.removesuffix('_ms')}` of the window of `{new['name']}` was"
                f" {before.get(option)} and is {after.get(option)} now"
            )


def _shaping(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy without the options that did nothing; files may no longer name them."""
    if policy["kind"] == "aggregate" and policy["function"] not in AGGREGATE_FUNCTIONS:
        return policy | {"of": None}
    if policy["kind"] == "suppress" and policy["until"] == "time-limit":
        return policy | {"window": None}
    return policy


def _taken(before: Stamp, now: Stamp) -> Iterator[str]:
    olds = {policy["store"]: policy for policy in before.operators}
    for new in now.operators:
        old = olds.get(new["store"])
        if old is None:
            yield f"`{new['name']}` is new, and begins without state"
        elif old != new:
            options = old.keys() | new.keys()
            changed = sorted(one for one in options if old.get(one) != new.get(one))
            yield f"`{new['name']}` goes on with another " + ", ".join(f"`{it}`" for it in changed)
    stayed = [policy["store"] for policy in now.operators if policy["store"] in olds]
    if stayed != [store for store in olds if store in stayed]:
        yield "the operators stand in another order"
    stores = {policy["store"] for policy in now.operators}
    for old in before.operators:
        if old["store"] not in stores:
            yield f"`{old['name']}` is gone, and held nothing"
