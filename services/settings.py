"""Settings that differ from place to place: Kafka's address, our logins, and our memory.

Every setting is a variable of the environment: `commit_interval_ms` is `HEADRACE_COMMIT_INTERVAL`,
written as in a pipeline, `200ms`. A variable with `_FILE` behind its name holds the path of a file
with the value, which is how secrets are mounted. A flag of the command line goes before both. An
empty variable counts as none, since compose files hand over empty ones for what is not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.policies import Name
from headrace.contracts.problem_text import show
from headrace.contracts.servers import (
    PORT_MAX,
    Servers,
    check_host,
    check_registry,
    check_url,
    is_in_clear,
)
from headrace.contracts.time import DurationMs, SizeBytes, format_duration_ms
from headrace.services.variables import (
    FILE_SUFFIX,
    PREFIX,
    Environment,
    environment_problems,
    variable,
)


def _check_file(file: Path) -> Path:
    try:
        # A pipe brings what is in it once.
        is_kept = file.is_file() or not file.exists()
        if is_kept:
            file.read_bytes()
    except OSError as error:
        message = f"`{file}` cannot be read ({error.strerror}); check the path and its permissions"
        raise ValueError(message) from error
    if not is_kept:
        message = (
            f"`{file}` is no file; each connection reads it anew, so write the certificate or key"
            " into one"
        )
        raise ValueError(message)
    return file


_SENT_MS_MAX = 12 * 86_400_000
"""Brokers are told such a time, or two of them together, as a number of 32 bits."""
_Positive = Annotated[DurationMs, Field(gt=0)]
_Sent = Annotated[DurationMs, Field(gt=0, le=_SENT_MS_MAX)]
_Port = Annotated[int, Field(ge=0, le=PORT_MAX)]
_ReadableFile = Annotated[Path, AfterValidator(_check_file)]
_Text = Annotated[str, Field(min_length=1)]
_TokenUrl = Annotated[str, Field(pattern=r"^https?://[^/@\s]+(?:/|$)"), AfterValidator(check_url)]
_RegistryUrl = Annotated[str, AfterValidator(check_registry)]


class Settings(BaseSettings):
    """One process's settings; `read_settings` says in sentences what is wrong with them."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    bootstrap_servers: Servers = "127.0.0.1:9092"
    """Where to find the brokers: `host:port`, several with commas."""
    state_folder: Path = Path("state")
    """Where state lies; each pipeline has a folder in it."""
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    """Whether each cleaned record comes out once, or at least once behind a crash."""
    commit_interval_ms: _Positive = 200
    """How often each partition commits, while it has something to commit; more seldom where so many
    have that an instance would make more than 400 commits a second."""
    commit_records_max: Annotated[int, Field(gt=0)] = 20_000
    """A partition commits earlier if so many records wait in it."""
    commit_bytes_max: Annotated[SizeBytes, Field(gt=0)] = 16 << 20
    """A partition commits earlier if so much output waits in it."""
    memory_bytes: Annotated[SizeBytes, Field(gt=0)] | None = None
    """The memory of the whole process; half of the machine's or container's if absent."""
    replication_factor: Annotated[int, Field(gt=0, le=32_767)] | None = None
    """Of the topics that headrace makes; the broker's default if absent."""
    http_port: _Port | None = None
    """The port of /live, /ready and /metrics; none by default."""
    http_host: Annotated[_Text, AfterValidator(check_host)] = "127.0.0.1"
    """The address they answer at."""
    instance_id: Name | None = None
    """A name that survives restarts (Kafka's `group.instance.id`): a short one moves nothing."""
    session_timeout_ms: _Sent = 10_000
    """After so long a silence the others take over our partitions."""
    heartbeat_interval_ms: _Positive = 300
    """How often the group hears of us."""
    transaction_timeout_ms: _Sent = 15_000
    """After so long the broker aborts a transaction whose owner is gone."""
    shutdown_timeout_ms: _Sent = 20_000
    """How long a stop may take to commit what is under way; the whole stop takes twice as long."""
    standbys: Annotated[int, Field(ge=0)] = 0
    """Copies of each partition's state that other instances keep up, to take over at once."""
    acceptable_recovery_lag: Annotated[int, Field(ge=0)] = 1_000
    """A copy of a state that lacks no more changelog records than these may take over."""
    max_warmup_replicas: Annotated[int, Field(gt=0)] = 2
    """So many partitions at once are learned by instances that they move to, in the whole group."""
    probing_interval_ms: _Positive = 600_000
    """How often the group looks again while partitions or copies are not where they should be."""
    stall_timeout_ms: _Positive = 180_000
    """Without progress for so long, while there are records to read, we count as stalled."""
    decisions: bool = False
    """Write what became of each record to `<cleaned>.decisions`."""
    accept_retention: bool = False
    """Write to topics that delete by the brokers' default, too; it is said at every start."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto` is text on a terminal, and JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How to talk to the brokers."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    """How to say who we are."""
    sasl_username: _Text | None = None
    """Our name, for PLAIN and SCRAM."""
    sasl_password: SecretStr | None = None
    """The password of that name."""
    ssl_ca_file: _ReadableFile | None = None
    """The authorities that sign the brokers' certificates, as PEM; the system's if absent. The
    token server's certificate is checked with both."""
    ssl_certificate_file: _ReadableFile | None = None
    """Our own certificate, as PEM, for brokers that ask for one."""
    ssl_key_file: _ReadableFile | None = None
    """Its key, as PEM."""
    ssl_key_password: SecretStr | None = None
    """The password of that key."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must name the host that we called."""
    oauth_token_url: _TokenUrl | None = None
    """Where tokens come from, by OAuth's client credentials."""
    oauth_plain_http: bool = False
    """Whether that may be an `http://` address elsewhere, to which the secret goes in clear."""
    oauth_client_id: _Text | None = None
    """The client that asks for a token."""
    oauth_client_secret: SecretStr | None = None
    """The secret of that client."""
    oauth_scope: _Text | None = None
    """The scope of the token."""

    schema_registry_url: _RegistryUrl | None = None
    """Where schemas stand that values name by number, for sources with `values: registry`."""
    schema_registry_username: _Text | None = None
    """Our name there, for a registry with logins."""
    schema_registry_password: SecretStr | None = None
    """The password of that name."""
    schema_registry_ca_file: _ReadableFile | None = None
    """The authorities that sign its certificate, as PEM, beside the system's."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags go before the environment."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, Environment(settings_cls)

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        found = (_security_problems(self), _registry_problems(self), _timing_problems(self))
        if problems := [*chain.from_iterable(found)]:
            details = [
                InitErrorDetails(
                    type=PydanticCustomError("refused", "{sentence}", {"sentence": sentence}),
                    loc=(field,),
                    input=None,
                )
                for field, sentence in problems
            ]
            raise ValidationError.from_exception_data(Settings.__name__, details)
        return self


def read_settings(**flags: object) -> Settings:
    """The settings from flags (None is a flag not given), variables and files, or SettingsInvalid.

    The error has a line for each problem, and never a value that is secret.
    """
    given = {field: value for field, value in flags.items() if value is not None}
    if problems := list(environment_problems(Settings.model_fields)):
        raise SettingsInvalid("\n".join(problems))
    try:
        return Settings(**given)  # type: ignore[arg-type]  # wrong ones are what is caught here
    except ValidationError as error:
        lines = [_line(details, given) for details in error.errors(include_url=False)]
    # The cause would carry what was written, and that may be secret.
    raise SettingsInvalid("\n".join(lines))


def _security_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the settings that would have no effect, and those that are missing."""
    sasl = settings.security_protocol.startswith("SASL_")
    tls = settings.security_protocol.endswith("SSL")
    takes_tokens = sasl and settings.sasl_mechanism == "OAUTHBEARER"
    by_https = takes_tokens and (settings.oauth_token_url or "").startswith("https://")
    for name in sorted(settings.model_fields_set):
        if name == "ssl_ca_file" and by_https:
            continue
        if name.startswith("ssl_") and not tls:
            yield name, f"does nothing without TLS; set {_PROTOCOL} to SSL or SASL_SSL"
        if name.startswith(("sasl_", "oauth_")) and not sasl:
            yield name, f"does nothing without SASL; set {_PROTOCOL} to SASL_SSL"
    if sasl:
        yield from _login_problems(settings)
    if settings.ssl_certificate_file is not None and settings.ssl_key_file is None:
        yield "ssl_key_file", "is missing; a certificate needs its key, if need be the same file"
    if settings.ssl_certificate_file is None and settings.ssl_key_file is not None:
        yield "ssl_certificate_file", "is missing; a key needs its certificate"
    if settings.ssl_key_password is not None and settings.ssl_key_file is None:
        yield "ssl_key_password", "does nothing without a key; set HEADRACE_SSL_KEY_FILE"


_PROTOCOL = "HEADRACE_SECURITY_PROTOCOL"
_LOGIN = ("sasl_username", "sasl_password")
_CLIENT = ("oauth_token_url", "oauth_client_id", "oauth_client_secret")


def _login_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    mechanism = settings.sasl_mechanism
    if mechanism is None:
        yield "sasl_mechanism", "is missing; SASL needs one, such as SCRAM-SHA-512"
        return
    oauth = mechanism == "OAUTHBEARER"
    for name in _CLIENT if oauth else _LOGIN:
        if not getattr(settings, name):
            yield name, f"is missing; {mechanism} needs it"
    for name in _LOGIN if oauth else (*_CLIENT, "oauth_scope", "oauth_plain_http"):
        if getattr(settings, name):
            yield name, f"does nothing with {mechanism}; remove it"
    if oauth and not settings.oauth_plain_http and is_in_clear(settings.oauth_token_url or ""):
        sentence = (
            "would send the secret in clear to another machine; write https://, or set"
            " HEADRACE_OAUTH_PLAIN_HTTP to true where the way there is safe"
        )
        yield "oauth_token_url", sentence


def _registry_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    url, username = settings.schema_registry_url, settings.schema_registry_username
    if url is None:
        for name in sorted(settings.model_fields_set):
            if name.startswith("schema_registry_"):
                yield name, "does nothing without a registry; set HEADRACE_SCHEMA_REGISTRY_URL"
        return
    if username is None and settings.schema_registry_password is not None:
        yield "schema_registry_username", "is missing; a password needs a user"
    if settings.schema_registry_ca_file is not None and not url.startswith("https://"):
        yield "schema_registry_ca_file", "does nothing without TLS; write https:// in the address"
    if username is not None and is_in_clear(url):
        yield "schema_registry_url", "would send a password in clear elsewhere; write https://"


def _timing_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    # At least once, an instance sends nothing once three quarters of its session are silent.
    half = "half of " if settings.guarantee == "at-least-once" else ""
    session, transaction = "session_timeout_ms", "transaction_timeout_ms"
    bounds = ("heartbeat_interval_ms", session, half), ("commit_interval_ms", transaction, "")
    for field, longer, part in bounds:
        longer_ms: int = getattr(settings, longer)
        if getattr(settings, field) >= (longer_ms / 2 if part else longer_ms):
            written = f"{variable(longer)} ({format_duration_ms(longer_ms)})"
            yield field, f"must be shorter than {part}{written}"


def _line(details: ErrorDetails, flags: dict[str, object]) -> str:
    """One problem, with the name under which the user knows the setting."""
    field = str(details["loc"][0])
    if details["type"] == "refused":
        return f"{variable(field)}: {details['msg']}"
    name = variable(field)
    if field in flags:
        name = "--" + name.removeprefix(PREFIX).lower().replace("_", "-")
    if name not in os.environ and os.environ.get(name + FILE_SUFFIX):
        name += FILE_SUFFIX
    write = _SENTENCES.get(details["type"])
    sentence = f"{show(details['input'])} cannot stand here" if write is None else write(details)
    return f"{name}: {sentence}"


def _choice(details: ErrorDetails) -> str:
    expected = details["ctx"]["expected"].replace("'", "`")
    return f"{show(details['input'])} is none of the choices; write {expected}"


def _not_switch(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not a switch; write `true` or `false`"


def _not_number(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not a whole number; write one, such as 1000"


def _too_small(details: ErrorDetails) -> str:
    bounds = details["ctx"]
    bound = f"more than {bounds['gt']}" if "gt" in bounds else f"at least {bounds['ge']}"
    return f"{show(details['input'])} is too small; write {bound}"


def _too_large(details: ErrorDetails) -> str:
    most = details["ctx"]["le"]
    written = format_duration_ms(most) if str(details["loc"][0]).endswith("_ms") else most
    return f"{show(details['input'])} is too large; write at most {written}"


def _not_matching(details: ErrorDetails) -> str:
    # A secret may stand in an address before its `@`, so such a one is not shown.
    if details["loc"][0] == "oauth_token_url":
        shown = "" if "@" in details["input"] else f"{show(details['input'])} "
        return f"{shown}is not an address; write https://host/path, without a user"
    return (
        f"{show(details['input'])} is not a name that Kafka accepts;"
        " write letters, digits, `.`, `_` and `-`, at most 80, beginning with a letter or digit"
    )


_SENTENCES: dict[str, Callable[[ErrorDetails], str]] = {
    "literal_error": _choice,
    "bool_parsing": _not_switch,
    "bool_type": _not_switch,
    "int_parsing": _not_number,
    "int_type": _not_number,
    "greater_than": _too_small,
    "greater_than_equal": _too_small,
    "less_than_equal": _too_large,
    "string_pattern_mismatch": _not_matching,
    "value_error": lambda details: str(details["ctx"]["error"]),
}
