"""Refusals and failures of brokers, once we have begun: a sentence each, where no try helps."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka.errors import InvalidSessionTimeoutError, InvalidTransactionTimeout, KafkaError

from headrace.contracts.errors import KafkaRefused, KafkaUnreachable, SettingsInvalid
from headrace.contracts.time import format_duration_ms
from headrace.services.kafka.rights import DENIALS
from headrace.services.kafka.security import user_of
from headrace.services.settings import Settings
from headrace.services.variables import variable

_SETTINGS = {
    InvalidTransactionTimeout: ("transaction_timeout_ms", "transaction.max.timeout.ms"),
    InvalidSessionTimeoutError: ("session_timeout_ms", "group.*.session.timeout.ms"),
}
"""By error: the setting that is wrong, and the brokers' setting that bounds it."""


def refusal_of(problem: BaseException, settings: Settings) -> KafkaRefused | SettingsInvalid | None:
    """Return our error for one that would come again and again, or None for any other."""
    for found in _causes(problem):
        if isinstance(found, DENIALS):
            message = (
                f"the brokers do not let {user_of(settings)} go on ({found}); `headrace plan` with"
                " `--acls` prints all that is to be granted"
            )
            return KafkaRefused(message)
        if type(found) in _SETTINGS:
            field, theirs = _SETTINGS[type(found)]
            value = format_duration_ms(getattr(settings, field))
            message = f"{variable(field)}: the brokers do not take {value}; see their `{theirs}`"
            return SettingsInvalid(message)
    return None


def ending_of(problem: BaseException, settings: Settings) -> BaseException:
    """Return the error with which the process ends: ours, where brokers are to blame."""
    ending: BaseException | None = refusal_of(problem, settings)
    if ending is None and isinstance(problem, KafkaError):
        message = (
            f"the brokers at {settings.bootstrap_servers} answered, and then failed"
            f" ({problem!r}); check that they are well, and start again"
        )
        ending = KafkaUnreachable(message)
    if ending is None:
        return problem
    ending.__cause__ = problem
    return ending


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__
