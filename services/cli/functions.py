"""The user's own functions: are they where the pipeline says, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.errors import SelectorInvalid
from contracts.pipeline import PipelineSpec
from contracts.policies import AggregatePolicy, AnyOperator, DeduplicatePolicy, FilterPolicy
from contracts.selector_text import (
    AGGREGATE_FUNCTIONS,
    RECORD_TIMESTAMP,
    Selector,
    parse_selector,
    parse_where,
)
from contracts.selectors import load_function, load_object

_AGGREGATE_METHODS = ("initial", "add", "merge")


def function_problems(pipeline: PipelineSpec) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Each function that cannot be called, with the place that names it."""
    for path, text in _named_functions(pipeline):
        try:
            if path[-1] == "function":
                _check_aggregate_object(text)
            else:
                load_function(text)
        except SelectorInvalid as error:
            yield path, str(error)


def _named_functions(pipeline: PipelineSpec) -> Iterator[tuple[tuple[int | str, ...], str]]:
    timestamp = pipeline.source.timestamp
    if timestamp != RECORD_TIMESTAMP and parse_selector(timestamp).place == "function":
        yield ("source", "timestamp"), timestamp
    for index, policy in enumerate(pipeline.operators):
        for option, selector in _selectors(policy):
            if selector.place == "function":
                yield ("operators", index, policy.kind, option), selector.text


def _selectors(policy: AnyOperator) -> Iterator[tuple[str, Selector]]:
    if isinstance(policy, DeduplicatePolicy) and policy.id is not None:
        yield "id", parse_selector(policy.id)
    if isinstance(policy, FilterPolicy):
        where = parse_where(policy.where)
        if isinstance(where, Selector):
            yield "where", where
    if isinstance(policy, AggregatePolicy):
        if policy.function not in AGGREGATE_FUNCTIONS:
            yield "function", parse_selector(policy.function)
        if policy.of is not None:
            yield "of", parse_selector(policy.of)


def _check_aggregate_object(text: str) -> None:
    found = load_object(text)
    missing = [name for name in _AGGREGATE_METHODS if not callable(getattr(found, name, None))]
    if missing:
        message = f"`{text}` has no {' and no '.join(missing)}; an aggregate needs all of these"
        raise SelectorInvalid(message)
