"""Our rights at the brokers: asked for before anything is done, and said in a sentence.

Brokers tell of topics and groups what we may do with them (KIP-430), and refuse to say where a
transactional id's coordinator is to those who may not use it. One that is not Apache's may say
nothing; what is forbidden then shows when it is tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    for_code,
)

from headrace.contracts.errors import KafkaRefused
from headrace.contracts.rights import Right
from headrace.services.kafka.cluster import Cluster
from headrace.services.kafka.patience import patient
from headrace.services.kafka.right_requests import OperationsOnGroup, OperationsOnTopics

_BITS: dict[str, int] = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "DescribeConfigs": 10}
DENIALS = (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
"""How brokers say no, once we have begun."""
_UNSAID = -(1 << 31)
_NOTHING = 0


async def require(cluster: Cluster, rights: Iterable[Right]) -> list[str]:
    """Sentences about rights that we lack and can do without; KafkaRefused for the others.

    Of topics that are not there nothing is said.
    """
    lacking = await _lacking(cluster, [*rights])
    needed: dict[tuple[str, str], list[Right]] = {}
    rest: dict[str, list[Right]] = {}
    for right in lacking:
        if right.is_needed:
            needed.setdefault((right.resource, right.name), []).append(right)
        else:
            rest.setdefault(right.operation, []).append(right)
    if needed:
        raise KafkaRefused("\n".join(_refusal(cluster.user, one) for one in needed.values()))
    return [_warning(cluster.user, alike) for alike in rest.values()]


async def _lacking(cluster: Cluster, rights: list[Right]) -> list[Right]:
    granted: dict[tuple[str, str], int] = {}
    topics = {right.name for right in rights if right.resource == "topic"}
    for name, bits in (await _on_topics(cluster, topics)).items():
        granted["topic", name] = bits
    for _, resource, name, *_ in rights:
        if resource == "group":
            granted[resource, name] = await _on_group(cluster, name)
        elif resource == "transactional-id":
            granted[resource, name] = await _on_transactions(cluster, name)
    return [right for right in rights if _is_lacking(right, granted)]


def _is_lacking(right: Right, granted: dict[tuple[str, str], int]) -> bool:
    bits = granted.get((right.resource, right.name), _UNSAID)
    # To make topics we may be allowed on the whole cluster, or need not at all.
    is_told = bits != _UNSAID and right.operation != "Create"
    return is_told and not bits >> _BITS[right.operation] & 1


async def may_be_read(topic: str, ask: Callable[[Any], Awaitable[Any]]) -> bool:
    """Whether we may read a topic by the word of some broker; not where it says nothing."""
    bits = _bits_in(await ask(OperationsOnTopics([topic]))).get(topic, _UNSAID)
    return bits != _UNSAID and bool(bits >> _BITS["Read"] & 1)


@patient
async def _on_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, int]:
    return _bits_in(await cluster.send(OperationsOnTopics(names)))


def _bits_in(answer: Any) -> dict[str, int]:
    found = {}
    for code, name, _, _, bits in answer.topics:
        if for_code(code) is TopicAuthorizationFailedError:
            found[name] = _NOTHING
        elif not code:
            found[name] = bits
    return found


@patient
async def _on_group(cluster: Cluster, name: str) -> int:
    try:
        answer = await cluster.send(OperationsOnGroup(name), await cluster.coordinator(name))
    except GroupAuthorizationFailedError:
        return _NOTHING
    ((code, *_, bits),) = answer.groups
    error = for_code(code)
    if error is GroupAuthorizationFailedError:
        return _NOTHING
    if error.retriable:
        raise error
    told: int = bits
    return _UNSAID if code else told


@patient
async def _on_transactions(cluster: Cluster, name: str) -> int:
    identity = name.replace("*", "0")
    try:
        await cluster.coordinator(identity, CoordinationType.TRANSACTION)
    except TransactionalIdAuthorizationFailed:
        return _NOTHING
    return _UNSAID


def _refusal(user: str, lacking: list[Right]) -> str:
    first = lacking[0]
    operations = " and ".join(right.operation for right in lacking)
    named = f"the {first.resource.replace('-', ' ')} `{first.name}`"
    return (
        f"the brokers do not grant {user} {operations} on {named}"
        f" ({'; '.join(right.why for right in lacking)});"
        " `headrace plan` with `--acls` prints all that is to be granted"
    )


def _warning(user: str, alike: list[Right]) -> str:
    names = ", ".join(f"`{right.name}`" for right in alike)
    return f"the brokers do not grant {user} {alike[0].operation} on {names}: {alike[0].without}"
