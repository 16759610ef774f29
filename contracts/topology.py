"""Check that the operators of a pipeline fit each other, which no single policy can see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.contracts.hops import FILES_BESIDE_HOPS, is_by_id
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    FilterPolicy,
    ReorderPolicy,
    SamplePolicy,
    SuppressPolicy,
    Tumbling,
    Unlimited,
    Window,
)
from headrace.contracts.selector_text import AGGREGATE_FUNCTIONS
from headrace.contracts.time import format_duration_ms


class Problem(NamedTuple):
    """Something that cannot work, and where it stands."""

    path: tuple[int | str, ...]
    sentence: str


def with_names(operators: Sequence[AnyOperator]) -> tuple[AnyOperator, ...]:
    """Return the operators with default names filled in."""
    named = []
    for policy in operators:
        name = policy.name or policy.kind
        named.append(policy.model_copy(update={"name": name, "store": policy.store or name}))
    return tuple(named)


def operator_problems(operators: Sequence[AnyOperator]) -> Iterator[Problem]:
    """Yield why these operators cannot stand in one pipeline, in their order."""
    merges: set[str | None] = {f"{policy.name}-merge" for policy in operators}
    names: set[str | None] = set()
    stores: set[str | None] = set()
    aggregate: AggregatePolicy | None = None
    for index, policy in enumerate(operators):
        path = (index, policy.kind)
        if policy.name in names:
            yield Problem(path, _same_name(policy))
        elif policy.store in stores:
            yield Problem(path, f"the store `{policy.store}` has an owner; give another `store`")
        elif merges & {policy.name, policy.store}:
            yield Problem(path, _name_of_ours(policy))
        elif is_by_id(policy) and policy.name in FILES_BESIDE_HOPS:
            yield Problem(path, _name_of_a_file(policy))
        names.add(policy.name)
        stores.add(policy.store)
        for option, sentence in without_effect(policy):
            yield Problem((*path, option), sentence)
        if isinstance(policy, SuppressPolicy) and policy.until == "window-closes":
            problem = _window_problem(policy, aggregate)
            if problem is not None:
                yield Problem(path, problem)
        if isinstance(policy, AggregatePolicy):
            aggregate = policy


def with_windows(operators: Sequence[AnyOperator]) -> tuple[AnyOperator, ...]:
    """Return the operators, each suppress with the window whose end it waits for."""
    settled: list[AnyOperator] = []
    window: Window | None = None
    for policy in operators:
        if isinstance(policy, AggregatePolicy):
            window = policy.window
        waits = isinstance(policy, SuppressPolicy) and policy.until == "window-closes"
        if waits and window is not None:
            settled.append(policy.model_copy(update={"window": window}))
        else:
            settled.append(policy)
    return tuple(settled)


def describe_window(window: Window) -> str:
    """Return a window as a pipeline file writes it."""
    options = window.model_dump(by_alias=True, exclude={"kind"})
    written = [f"{name}: {format_duration_ms(value)}" for name, value in options.items()]
    return "{" + ", ".join([f"kind: {window.kind}", *written]) + "}"


def _same_name(policy: AnyOperator) -> str:
    return (
        f"two operators are called `{policy.name}`, and state is found by name;"
        f" give one of them another, such as `name: {policy.name}-again`"
    )


def _name_of_ours(policy: AnyOperator) -> str:
    return (
        f"`{policy.name}` is what headrace calls a merge behind an operator of yours; give it"
        " another name and store"
    )


def without_effect(policy: AnyOperator) -> Iterator[tuple[str, str]]:
    """Yield options that do nothing beside the others, each with a sentence.

    The policies themselves accept them, since states that were written with them are still read.
    """
    if isinstance(policy, ReorderPolicy) and policy.grace_ms == 0:
        given = {
            "late": policy.late != "forward",
            "buffer": policy.buffer != BufferPolicy(),
            "idle": policy.idle_ms is not None,
        }
        for option in (option for option, is_given in given.items() if is_given):
            sentence = (
                "with `grace: 0s` every record leaves at once, so none is late and none is held;"
                f" remove `{option}`, or give a longer `grace`"
            )
            yield option, sentence
    if isinstance(policy, SuppressPolicy) and policy.until == "time-limit" and policy.window:
        sentence = (
            "`until: time-limit` counts from a record's own time, in whatever window it is;"
            " remove `window`"
        )
        yield "window", sentence
    keeps_none = isinstance(policy, FilterPolicy | SamplePolicy)
    if keeps_none and policy.store not in {None, policy.name, policy.kind}:
        yield "store", f"`{policy.kind}` keeps no state, so it has no store; remove `store`"
    if not isinstance(policy, AggregatePolicy):
        return
    if policy.of is not None and policy.function not in AGGREGATE_FUNCTIONS:
        sentence = (
            f"`{policy.function}` is given the whole record, and not what `of` selects; remove"
            " `of`, and let the function select"
        )
        yield "of", sentence
    if policy.late == "topic" and isinstance(policy.window, Unlimited | None):
        sentence = (
            "`late: topic` is for records whose windows are closed, and here no window ever closes;"
            " remove it, or add a `window` that closes"
        )
        yield "late", sentence


def _name_of_a_file(policy: AnyOperator) -> str:
    return (
        f"`{policy.name}` is what headrace calls a file where a folder with this operator's name"
        " would stand; give it another name"
    )


def _window_problem(policy: SuppressPolicy, aggregate: AggregatePolicy | None) -> str | None:
    window = policy.window
    if aggregate is not None:
        if aggregate.window is None:
            return (
                f"`until: window-closes` needs windows, and `{aggregate.name}` before it makes"
                " none; give that one a `window`, or use `until: time-limit`"
            )
        if window is not None and window != aggregate.window:
            return (
                f"its `window` differs from that of `{aggregate.name}` before it, which is"
                f" {describe_window(aggregate.window)}; remove it here"
            )
        window = aggregate.window
    if window is None:
        example = describe_window(Tumbling(size_ms=3_600_000, grace_ms=600_000))
        return (
            "`until: window-closes` needs to know the window; put an aggregate with a `window`"
            f" before it, or write whose windows the source has, such as `window: {example}`"
        )
    if isinstance(window, Unlimited):
        return (
            "an unlimited window never closes, so nothing would ever leave;"
            " use `until: time-limit`, or another window"
        )
    return None
