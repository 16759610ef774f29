"""The user's own functions: are they where the pipeline says, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.contracts.errors import SelectorInvalid
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    FilterPolicy,
)
from headrace.contracts.selector_text import (
    AGGREGATE_FUNCTIONS,
    RECORD_TIMESTAMP,
    Selector,
    parse_selector,
    parse_where,
)
from headrace.contracts.selectors import load_function, load_object
from headrace.services.operators.functions import user_function


def function_problems(pipeline: PipelineSpec) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Each function that cannot be called, with the place that names it."""
    for path, text in _named_functions(pipeline):
        try:
            if path[-1] == "function":
                user_function(text, load_object(text))
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
