"""A broker that lets everybody do what is granted, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from headrace.contracts.rights import Right
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.settings import Settings
from tests.kafka.fixtures import OwnKafka

PASSWORD = "open-sesame"  # noqa: S105
_RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_CLUSTER = "kafka-cluster"
_OPERATIONS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
}
_BY_NAME, _BY_PREFIX = 3, 4
_ALLOW = 3
_ANY = 1
_WITHIN_S = 60.0
_ASK_AGAIN_S = 0.02
Rule = tuple[int, str, int, str, str, int, int]
"""As it goes over the wire: resource, name, pattern, principal, host, operation, permission."""


class Guarded(NamedTuple):
    """The broker; whoever needs no password there is its administrator."""

    broker: EmbeddedBroker

    def login(self, user: str) -> dict[str, str]:
        """The settings with which a sidecar is this user."""
        return {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": user,
            "sasl_password": PASSWORD,
        }

    def settings(self, user: str, **changes: Any) -> Settings:
        """The same, read."""
        return Settings(**{**self.login(user), **changes})

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Allow this; returns when the broker knows."""
        asyncio.run(self._change(user, [rule_of(right, user) for right in rights], there=True))

    def revoke(self, user: str, rights: Iterable[Right]) -> None:
        """Allow this no more; returns when the broker knows."""
        asyncio.run(self._change(user, [rule_of(right, user) for right in rights], there=False))

    def granted(self, user: str) -> set[Rule]:
        """All that a user may do."""
        return asyncio.run(self._granted(user))

    async def _change(self, user: str, rules: Collection[Rule], *, there: bool) -> None:
        async with _administrator(self.broker.plain_servers) as admin:
            for rule in rules:
                request = CreateAclsRequest(*rule) if there else DeleteAclsRequest(*rule)
                answer = await admin.ask(request)
                responses = answer.creation_responses if there else answer.filter_responses
                assert [one[0] for one in responses] == [0]
            give_up_at_s = time.monotonic() + _WITHIN_S
            while len(set(rules) & await admin.granted(user)) != (len(rules) if there else 0):
                assert time.monotonic() < give_up_at_s, "the broker does not hear of it"
                await asyncio.sleep(_ASK_AGAIN_S)

    async def _granted(self, user: str) -> set[Rule]:
        async with _administrator(self.broker.plain_servers) as admin:
            return await admin.granted(user)


class _Admin:
    """A connection as administrator."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client

    async def ask(self, request: Any) -> Any:
        return await self._client.send(self._client.get_random_node(), request)

    async def granted(self, user: str) -> set[Rule]:
        request = DescribeAclsRequest(_ANY, None, _ANY, f"User:{user}", None, _ANY, _ANY)
        answer = await self.ask(request)
        return {
            (kind, name, pattern, *one)
            for kind, name, pattern, rules in answer.resources
            for one in rules
        }


@asynccontextmanager
async def _administrator(servers: str) -> AsyncIterator[_Admin]:
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    try:
        yield _Admin(client)
    finally:
        await client.close()


def guarded_broker(make: OwnKafka, users: Iterable[str]) -> Guarded:
    """Start one that knows these users."""
    known = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{module} required {known};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    return Guarded(make(properties, clients_protocol="SASL_PLAINTEXT"))


def rule_of(right: Right, user: str) -> Rule:
    """A right as Kafka keeps it."""
    return (
        _RESOURCES[right.resource],
        right.name.removesuffix("*") or _CLUSTER,
        _BY_PREFIX if right.is_prefix else _BY_NAME,
        f"User:{user}",
        "*",
        _OPERATIONS[right.operation],
        _ALLOW,
    )
