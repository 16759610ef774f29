"""Values whose schemas stand in a registry, as JSON: what a worker of Spark reads them by.

A worker looks a schema up when the first value names it, and keeps it for its life. While the
registry is away the worker waits; after two minutes the micro-batch fails, and nothing of it is
lost. A number that the registry does not know makes a record dead; it is asked again later.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Mapping
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple, Self, TypeVar
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import orjson
from pydantic import AfterValidator, Field, SecretStr, model_validator

from headrace.contracts.errors import (
    RecordUndecodable,
    RegistryRefused,
    RegistryUnavailable,
    SchemaAwaited,
)
from headrace.contracts.policies import Policy
from headrace.contracts.serde.asked import (
    ACCEPTED,
    SENT,
    Denied,
    Foreign,
    Missing,
    NoAnswer,
    NoSchema,
    Unfit,
    answered,
    schema_of,
)
from headrace.contracts.serde.registered import Schemas
from headrace.contracts.servers import REGISTRY_PATTERN, check_registry, is_in_clear
from headrace.spark_jobs.read.avro_columns import PlainRecord
from headrace.spark_jobs.read.json_text import ALIKE

if TYPE_CHECKING:
    from email.message import Message

_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 16 << 20
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_PAUSE_S, _PAUSE_S_MAX, _WITHIN_S = 0.1, 2.0, 120.0
_MISSING_S = 60.0
_Text = Annotated[str, Field(min_length=1)]
Found = TypeVar("Found")


class RegistryAccess(Policy):
    """A schema registry that speaks Confluent's protocol."""

    url: Annotated[
        str, AfterValidator(check_registry), Field(json_schema_extra={"pattern": REGISTRY_PATTERN})
    ]
    """Its address, such as `http://127.0.0.1:8081`, without a user in it."""
    username: _Text | None = None
    """The job's name there, for a registry with logins."""
    password: SecretStr | None = None
    """The password of that name, such as `${REGISTRY_PASSWORD}`."""
    ca_file: _Text | None = None
    """The authorities that sign its certificate, in PEM, beside the system's."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ca_file is not None:
            if not self.url.startswith("https://"):
                message = "`ca-file` does nothing without TLS; write https:// in `url`"
                raise ValueError(message)
            try:
                _context(self.authorities())
            except (OSError, UnicodeDecodeError) as error:
                message = f"`ca-file`: `{self.ca_file}` holds no certificate that can be read"
                raise ValueError(message) from error
        if self.username is None and self.password is not None:
            message = "`username` is missing; a password needs a user"
            raise ValueError(message)
        if self.username is not None and is_in_clear(self.url):
            message = "`url` would send a password in clear elsewhere; write https://"
            raise ValueError(message)
        return self

    def authorities(self) -> str:
        """Return the content of the file of authorities, for workers without that file."""
        return "" if self.ca_file is None else Path(self.ca_file).read_text("utf-8")

    def asked(self) -> Asked:
        """Return what a worker needs to ask the registry."""
        secret = "" if self.password is None else self.password.get_secret_value()
        login = "" if self.username is None else f"{self.username}:{secret}"
        return Asked(self.url.rstrip("/"), login, self.authorities())


class Asked(NamedTuple):
    """A registry as a worker is told of it."""

    url: str
    login: str
    authorities: str


class AsJson(NamedTuple):
    """A value as JSON, or why it is none."""

    json: bytes | None
    problem: str | None


def as_json(value: bytes | None, asked: Asked) -> AsJson:
    """Read a value by the schema that it names."""
    if value is None:
        return AsJson(None, None)
    return _reader(asked).read(bytes(value))


def plain_record_of(value: bytes, asked: Asked) -> PlainRecord | None:
    """Return the schema that a value names, if the value is of it and its fields are plain."""
    return _reader(asked).plain_record_of(value)


@cache
def _reader(asked: Asked) -> _Reader:
    return _Reader(asked)


class Client:
    """Asks one registry; every call waits for its answer, for two minutes at most."""

    def __init__(self, asked: Asked) -> None:
        """Ask nothing yet."""
        self.url = asked.url
        self._headers = {"Accept": ACCEPTED, "Content-Type": SENT}
        if asked.login:
            encoded = base64.b64encode(asked.login.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        handlers = []
        if asked.url.startswith("https://"):
            handlers.append(HTTPSHandler(context=_context(asked.authorities)))
        self._opener = build_opener(_NoRedirect, *handlers)

    def patiently(self, ask: Callable[[], Found]) -> Found:
        """Return what the registry answers, and ask again while it is away."""
        pause_s, until_s = _PAUSE_S, time.monotonic() + _WITHIN_S
        while True:
            try:
                return ask()
            except NoSchema as error:
                message = f"{self.url} answers without a schema, as no registry does; check `url`"
                raise RegistryRefused(message) from error
            except RegistryUnavailable:
                if time.monotonic() >= until_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def ask(self, path: str) -> dict[str, Any]:
        """Return the fields of the answer to a path."""
        return self._answer(Request(self.url + path, headers=self._headers))  # noqa: S310 - options take http only

    def post(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the answer to fields that are sent."""
        body = json.dumps(fields).encode()
        return self._answer(Request(self.url + path, body, self._headers))  # noqa: S310 - options take http only

    def _answer(self, request: Request) -> dict[str, Any]:
        try:
            try:
                response = self._opener.open(request, timeout=_TIMEOUT_S)
            except HTTPError as refusal:
                response = refusal
            with response:
                answer = response.read(_ANSWER_BYTES_MAX)
                return answered(response.status, answer, is_cut=bool(response.length))
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                message = (
                    f"the certificate of the schema registry {self.url} is not vouched for"
                    f" ({reason.verify_message}); name its authority by `ca-file`"
                )
                raise RegistryRefused(message) from error
            raise self._away(reason) from error
        except NoAnswer as error:
            raise self._away(error) from error
        except Denied as error:
            message = (
                f"the schema registry {self.url} refuses this job ({error.status}); check"
                " `username` and `password`"
            )
            raise RegistryRefused(message) from error
        except Foreign as error:
            if isinstance(error, Unfit) and request.data is not None:
                raise
            message = f"{self.url} answers {error.status}, as no schema registry does; check `url`"
            raise RegistryRefused(message) from error

    def _away(self, why: object) -> RegistryUnavailable:
        return RegistryUnavailable(f"the schema registry {self.url} does not answer: {why}")


class _Reader:
    """Reads the values of one registry in this process."""

    def __init__(self, asked: Asked) -> None:
        self._client = Client(asked)
        self._schemas = Schemas()
        self._avro: dict[int, str] = {}
        self._missing_until_s: dict[int, float] = {}

    def read(self, value: bytes) -> AsJson:
        """Return a value as JSON."""
        number = int.from_bytes(value[1:5])
        if self._missing_until_s.get(number, float("inf")) <= time.monotonic():
            self._look_up(number)
        try:
            try:
                found = self._schemas.read_field(value, ())
            except SchemaAwaited as awaited:
                self._look_up(awaited.number)
                found = self._schemas.read_field(value, ())
            return AsJson(_written(found), None)
        except RecordUndecodable as error:
            return AsJson(None, str(error))
        except ValueError:
            return AsJson(None, f"a number in it, by schema {number}, is none that JSON has")
        except RecursionError:
            return AsJson(None, f"it has too many values in one another, by schema {number}")

    def plain_record_of(self, value: bytes) -> PlainRecord | None:
        """Return the schema of a value, None where values are read one by one."""
        # This looks the schema up, and finds out whether it can be used.
        if self.read(value).problem is not None:
            return None
        schema = self._avro.get(int.from_bytes(value[1:5]))
        return None if schema is None else _plain_of(schema)

    def _look_up(self, number: int) -> None:
        try:
            schema = self._client.patiently(lambda: schema_of(number, self._client.ask))
        except Missing as missing:
            why = f"the registry has no schema {number} ({missing})"
            self._schemas.put_missing(number, why)
            self._missing_until_s[number] = time.monotonic() + _MISSING_S
        else:
            self._schemas.put(number, schema)
            if schema.kind == "AVRO":
                self._avro[number] = schema.text
            self._missing_until_s.pop(number, None)


_plain_of = cache(PlainRecord.of)


def _written(found: Any) -> bytes:
    if type(found) is dict and ALIKE.issuperset(map(type, found.values())):
        try:
            # A copy: orjson's own bytes would keep four kilobytes with each value.
            return b"%b" % orjson.dumps(found)
        except orjson.JSONEncodeError:
            # A number has more than 64 bits, or a text half of a pair of characters.
            return _ENCODER.encode(found).encode()
    return _ENCODER.encode(found).encode()


class _NoRedirect(HTTPRedirectHandler):
    """Answers a redirect as an error, since it would carry the password to another server."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Return no request."""
        del req, fp, code, msg, headers, newurl


def _context(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities:
        context.load_verify_locations(cadata=authorities)
    return context
