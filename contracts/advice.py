"""Warnings for `plan`: a pipeline that works, but may not do what its author meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from headrace.contracts.hops import is_by_id
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    ReorderPolicy,
    SamplePolicy,
    SuppressPolicy,
    TablePolicy,
    Unlimited,
)
from headrace.contracts.time import format_duration_ms
from headrace.contracts.topics import keeps_state


def warnings(operators: Sequence[AnyOperator], max_future_ms: int | None) -> list[str]:
    """Return every warning about these operators, in their order."""
    sentences = []
    if max_future_ms is None and any(map(_goes_by_time, operators)):
        sentences.append(
            "One record with a timestamp far in the future makes every later record late."
            " Add `max-future: 1h` to the source, and such a record goes dead instead."
        )
    for policy in operators:
        sentences += _about_one(policy)
    sentences += [*_about_idles(operators), *_about_tables(operators)]
    for before, after in combinations(operators, 2):
        sentences += _about_two(before, after)
    for index, policy in enumerate(operators):
        if is_by_id(policy):
            sentences += _about_repartition(policy, operators[:index], operators[index + 1 :])
    return sentences


def _goes_by_time(policy: AnyOperator) -> bool:
    """Return whether a record's time decides about others, so that one far ahead does harm."""
    if isinstance(policy, AggregatePolicy) and isinstance(policy.window, Unlimited | None):
        return False
    return keeps_state(policy) and not isinstance(policy, TablePolicy)


def about_quiet(idle_ms: int | None, max_delay_ms: int | None) -> Iterator[str]:
    """Warn if a silent partition becomes idle while its records may still be on their way."""
    if idle_ms is not None and max_delay_ms is not None and idle_ms < max_delay_ms:
        idle, delay = map(format_duration_ms, (idle_ms, max_delay_ms))
        yield (
            f"A partition is idle after {idle} (`idle`), and its records may take {delay}"
            " (`max-delay`): those that come between are late. Leave `idle` out, and nothing is"
            f" guessed, or make it at least {delay}."
        )


def _about_one(policy: AnyOperator) -> Iterator[str]:
    if not isinstance(policy, ReorderPolicy):
        return
    if policy.buffer.when_full == "emit-early":
        yield (
            f"`{policy.name}` lets records go early when its buffer is full: then the output is"
            " not in order. `when-full: spill` keeps the order at any size."
        )
    if policy.idle_ms is not None:
        yield (
            f"`{policy.name}` looks at the clock (`idle: {format_duration_ms(policy.idle_ms)}`):"
            " two runs over the same records may differ."
        )


def _about_idles(operators: Sequence[AnyOperator]) -> Iterator[str]:
    """Warn if reorders of one hop have different `idle`s: the shortest counts for all."""
    idles_ms: list[dict[str, int]] = [{}]
    for policy in operators:
        if is_by_id(policy):
            idles_ms.append({})
        elif isinstance(policy, ReorderPolicy) and policy.idle_ms is not None:
            idles_ms[-1][str(policy.name)] = policy.idle_ms
    for of_hop_ms in idles_ms:
        if len(set(of_hop_ms.values())) > 1:
            names = " and ".join(f"`{name}`" for name in of_hop_ms)
            shortest = format_duration_ms(min(of_hop_ms.values()))
            yield (
                f"{names} have an `idle` each, and all of them let their records go after the"
                f" shortest, {shortest}. Give them one `idle`."
            )


def _about_tables(operators: Sequence[AnyOperator]) -> Iterator[str]:
    """Warn if a table stands before operators that do not need the values that it remembers."""
    for index, policy in enumerate(operators):
        if isinstance(policy, TablePolicy) and not _needs_old_values(operators[index + 1 :]):
            yield (
                f"`{policy.name}` keeps a row for every key, and no operator behind it needs the"
                " value that an update replaces: it only costs here."
            )


def _needs_old_values(behind: Sequence[AnyOperator]) -> bool:
    for policy in behind:
        if isinstance(policy, FilterPolicy | SuppressPolicy):
            return True
        if not isinstance(policy, SamplePolicy | TablePolicy):
            # Any other operator makes events, or a table of its own.
            return False
    return False


def _about_two(before: AnyOperator, after: AnyOperator) -> Iterator[str]:
    first, second = (f"`{policy.name}`" for policy in (before, after))
    match before, after:
        case DeduplicatePolicy() | DistinctPolicy(), ReorderPolicy():
            yield (
                f"{first} stands before {second}: of two duplicates the one with the lower offset"
                " wins, to KIP-655's letter, so the output depends on the order of arrival."
                f" Behind {second} the earlier by time would win."
            )
        case SuppressPolicy(), ReorderPolicy():
            yield (
                f"{first} stands before {second}: it keeps the update that came last, which need"
                " not be the latest by time, and what it releases is held once more."
            )
        case AggregatePolicy(), ReorderPolicy():
            yield (
                f"{second} stands behind {first}, which has refused late records by then."
                f" Put {second} first, and they are in time."
            )
        case AggregatePolicy(), DeduplicatePolicy() | DistinctPolicy():
            yield (
                f"{second} stands behind {first}: duplicates are in its results already, and two"
                f" updates of one result may look like duplicates. Put {second} first."
            )
        case SuppressPolicy(), DeduplicatePolicy() | DistinctPolicy():
            yield (
                f"{first} stands before {second}: a duplicate takes the place of the update that"
                f" is held. Put {second} first."
            )
        case _:
            pass
    yield from _forgets_too_early(before, after)


def _forgets_too_early(before: AnyOperator, after: AnyOperator) -> Iterator[str]:
    match before, after:
        case (ReorderPolicy() as reorder, DeduplicatePolicy() as deduplicate):
            pass
        case (DeduplicatePolicy() as deduplicate, ReorderPolicy() as reorder):
            pass
        case _:
            return
    if deduplicate.interval_ms < reorder.grace_ms:
        interval = format_duration_ms(deduplicate.interval_ms)
        grace = format_duration_ms(reorder.grace_ms)
        yield (
            f"`{deduplicate.name}` forgets an id after {interval}, yet `{reorder.name}` expects"
            f" records up to {grace} late: a duplicate that comes late may pass."
            f" Make `interval` at least {grace}."
        )


def _about_repartition(
    policy: DeduplicatePolicy, before: Sequence[AnyOperator], after: Sequence[AnyOperator]
) -> Iterator[str]:
    stateful = [f"`{other.name}`" for other in before if keeps_state(other)]
    if stateful:
        yield (
            f"`{policy.name}` spreads records anew, by id. What stands before it"
            f" ({', '.join(stateful)}) works on each partition of the source by itself."
        )
    if any(isinstance(other, ReorderPolicy) for other in before):
        yield (
            f"Behind `{policy.name}` the partitions of the source are merged again, in the order"
            " that a reorder before it made: a record waits there until every partition that is not"
            " idle is as far."
        )
    by_key = [f"`{other.name}`" for other in after if _works_by_key(other)]
    if by_key:
        yield (
            f"Behind `{policy.name}` the records of one key may stand in several partitions, so"
            f" {', '.join(by_key)} may see only some of them. That is right only if a key's"
            " records all have the same id."
        )


def _works_by_key(policy: AnyOperator) -> bool:
    by_key = DistinctPolicy | TablePolicy | AggregatePolicy | SuppressPolicy
    return isinstance(policy, by_key | DeduplicatePolicy) and not is_by_id(policy)
