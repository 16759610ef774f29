"""Schemas by number, looked up before operators need them, and kept for ever.

Operators read values by schemas that are here. A batch is looked through at the door for numbers
that nobody has looked up yet; a record that was held since an earlier life may still bring one, and
then its batch is tried again. While the registry does not answer, the partition waits: nothing of
it is open, and nothing is lost. A number that the registry does not know makes its records dead; it
is asked again a minute later, for schemas are sometimes registered late.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from operator import attrgetter

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.contracts.serde.registered import Schemas, numbers_in
from headrace.services.kafka.registry_client import (
    RegistryClient,
    RegistryUnavailableError,
    SchemaMissingError,
)
from headrace.services.kafka.security import trusting
from headrace.services.observe.logs import logger as logger_of
from headrace.services.settings import Settings
from headrace.services.variables import variable

_PAUSE_S = 0.1, 2.0
"""Between two questions: at first, and at most, for a task that closes waits so long."""
_MISSING_S = 60.0
_value_of = attrgetter("value")
logger = logger_of(__name__)


class Registry:
    """One worker's."""

    def __init__(self, spec: PipelineSpec, settings: Settings) -> None:
        """Ask for no schema before a value needs it."""
        self.schemas = Schemas()
        self.is_used = spec.source.values == "registry"
        self._client = client_of(spec, settings) if self.is_used else None
        self._missing_until_s: dict[int, float] = {}
        self._asking = asyncio.Lock()
        self._is_away = False
        self._waiting: set[TopicPartition] = set()

    def lacks(self, records: Iterable[Record]) -> set[int]:
        """The schemas of these records that must be looked up first."""
        if self._client is None:
            return set()
        return {number for number in numbers_in(map(_value_of, records)) if self._is_open(number)}

    def is_waited_for(self, source: TopicPartition) -> bool:
        """Whether a partition stands still until the registry answers."""
        return source in self._waiting

    async def learn(
        self, numbers: Iterable[int], source: TopicPartition, is_over: Callable[[], bool]
    ) -> None:
        """Look schemas up, however long it takes, unless it is over before."""
        pause_s = _PAUSE_S[0]
        self._waiting.add(source)
        try:
            while (wanted := list(filter(self._is_open, numbers))) and not is_over():
                try:
                    async with self._asking:
                        for number in filter(self._is_open, wanted):
                            await self._look_up(number)
                except RegistryUnavailableError as problem:
                    self._say_away(problem)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S[1])
        finally:
            self._waiting.discard(source)

    def _is_open(self, number: int) -> bool:
        if self.schemas.lacks(number):
            return True
        until_s = self._missing_until_s.get(number)
        return until_s is not None and time.monotonic() >= until_s

    async def _look_up(self, number: int) -> None:
        assert self._client is not None
        try:
            schema = await asyncio.to_thread(self._client.schema, number)
        except SchemaMissingError as missing:
            why = f"the registry has no schema {number} ({missing})"
            self._missing_until_s[number] = time.monotonic() + _MISSING_S
            self.schemas.put_missing(number, why)
            logger.warning("a schema is missing; its records are dead", schema=number, why=why)
        else:
            self._missing_until_s.pop(number, None)
            self.schemas.put(number, schema)
            logger.info("a schema was looked up", schema=number, kind=schema.kind)
        if self._is_away:
            self._is_away = False
            logger.info("the schema registry answers again")

    def _say_away(self, problem: RegistryUnavailableError) -> None:
        if self._is_away:
            return
        self._is_away = True
        logger.warning(
            "the schema registry does not answer; partitions with a schema that is new wait for it",
            why=str(problem),
        )


def client_of(spec: PipelineSpec, settings: Settings) -> RegistryClient:
    """Return a client of the registry that the settings name."""
    url = settings.schema_registry_url
    if url is None:
        message = (
            f"{variable('schema_registry_url')}: is missing; `values: registry` in the source of"
            f" `{spec.pipeline}` needs it, such as http://127.0.0.1:8081"
        )
        raise SettingsInvalid(message)
    login = None
    if settings.schema_registry_username is not None:
        password = settings.schema_registry_password
        login = settings.schema_registry_username, password.get_secret_value() if password else ""
    context: ssl.SSLContext | None = None
    if url.startswith("https://"):
        context = trusting(
            settings.schema_registry_ca_file, system=True, setting="schema_registry_ca_file"
        )
    return RegistryClient(url, login, context)
