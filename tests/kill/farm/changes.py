"""Draws another grace, interval or limit for one operator of a pipeline.

A longer interval makes decisions doubtful, which the judge follows by what left (see `lives`). A
suppress behind hides what left, so such an interval only gets shorter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    ReorderPolicy,
    SuppressPolicy,
)
from tests.properties.compose import wait_ms_of

_DAY_MS = 86_400_000
GRACES_MS = (500, 1_500, 3_000)
INTERVALS_MS = (2_000, 10_000, 30_000)
LIMITS_MS = (500, 4_000)
BY_ID_MS = (50 * _DAY_MS, 60 * _DAY_MS, 70 * _DAY_MS)
"""The stream and its last words are shorter than any of them: no id is ever forgotten."""


def waits(policies: Sequence[AnyOperator]) -> bool:
    """Return whether an operator waits for a time that can be another."""
    return any(map(_all_ms, policies))


def changed(luck: random.Random, policies: Sequence[AnyOperator]) -> tuple[AnyOperator, ...]:
    """Return the operators, of which one waits for another time; one of them `waits`."""
    choices = [
        (at, wait_ms)
        for at, policy in enumerate(policies)
        for wait_ms in _others_ms(policy, policies[at + 1 :])
    ]
    at, wait_ms = luck.choice(choices)
    changed = [*policies[:at], _waiting(policies[at], wait_ms), *policies[at + 1 :]]
    return tuple(_without_window(policy) for policy in changed)


def with_operators(spec: PipelineSpec, operators: Sequence[AnyOperator]) -> PipelineSpec:
    """Return the pipeline with these operators."""
    return PipelineSpec(
        pipeline=spec.pipeline, source=spec.source, operators=tuple(operators), sink=spec.sink
    )


def _others_ms(policy: AnyOperator, behind: Sequence[AnyOperator]) -> list[int]:
    now_ms = wait_ms_of(policy)
    others_ms = [wait_ms for wait_ms in _all_ms(policy) if wait_ms != now_ms]
    hides = any(isinstance(one, SuppressPolicy) for one in behind)
    if isinstance(policy, DeduplicatePolicy) and hides:
        return [wait_ms for wait_ms in others_ms if wait_ms < now_ms]
    return others_ms


def _all_ms(policy: AnyOperator) -> tuple[int, ...]:
    match policy:
        case ReorderPolicy() | AggregatePolicy() | DistinctPolicy():
            return GRACES_MS
        case DeduplicatePolicy(by="id"):
            return BY_ID_MS
        case DeduplicatePolicy():
            return INTERVALS_MS
        case SuppressPolicy(until="time-limit"):
            return LIMITS_MS
        case _:
            return ()


def _waiting(policy: AnyOperator, wait_ms: int) -> AnyOperator:
    match policy:
        case ReorderPolicy():
            return policy.model_copy(update={"grace_ms": wait_ms})
        case DeduplicatePolicy():
            return policy.model_copy(update={"interval_ms": wait_ms})
        case SuppressPolicy():
            return policy.model_copy(update={"limit_ms": wait_ms})
        case AggregatePolicy() | DistinctPolicy():
            assert policy.window is not None
            window = policy.window.model_copy(update={"grace_ms": wait_ms})
            return policy.model_copy(update={"window": window})
        case _:
            message = f"a {policy.kind} waits for no time"
            raise AssertionError(message)


def _without_window(policy: AnyOperator) -> AnyOperator:
    """A suppress gets the window of the aggregate before it when its pipeline is read."""
    if isinstance(policy, SuppressPolicy):
        return policy.model_copy(update={"window": None})
    return policy
