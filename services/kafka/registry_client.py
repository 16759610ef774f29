"""A schema registry asked over HTTP, in Confluent's protocol: a schema by its number.

The client asks for the schemas that a schema refers to by subject and version. Of Protobuf the
serialized descriptor is taken, so that nobody has to parse its language.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, Request, build_opener

from headrace.contracts.errors import RegistryRefused
from headrace.contracts.serde.registered import Named, Schema
from headrace.services.kafka.tokens import NoRedirect

_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 16 << 20
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""Subject, version and schema, as the protocol counts them; a 404 of anybody else has none."""
_SERIALIZED = "format=serialized"


class RegistryUnavailableError(Exception):
    """It does not answer, or says that it is busy or broken; asking again may help."""


class SchemaMissingError(Exception):
    """It answers that it has no such schema."""


class RegistryClient:
    """One registry; every call waits for its answer, so call it in a thread."""

    def __init__(
        self, url: str, login: tuple[str, str] | None, context: ssl.SSLContext | None
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if login is not None:
            encoded = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        handlers = [] if context is None else [HTTPSHandler(context=context)]
        self._opener = build_opener(NoRedirect, *handlers)

    def schema(self, number: int) -> Schema:
        """The schema of a number, with all that it refers to."""
        path = f"/schemas/ids/{number}"
        found = self._ask(path)
        kind = str(found.get("schemaType", "AVRO"))
        if kind == "PROTOBUF":
            found = self._ask(f"{path}?{_SERIALIZED}")
        referred: dict[str, str] = {}
        self._follow(found, kind, referred)
        references = tuple(Named(*one) for one in referred.items())
        return Schema(kind, _text_of(found, self._url), references)

    def _follow(self, found: Mapping[str, Any], kind: str, referred: dict[str, str]) -> None:
        for reference in found.get("references") or []:
            name, subject, version = (reference[part] for part in ("name", "subject", "version"))
            if name in referred:
                continue
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            answer = self._ask(f"{path}&{_SERIALIZED}" if kind == "PROTOBUF" else path)
            self._follow(answer, kind, referred)
            referred[name] = _text_of(answer, self._url)

    def _ask(self, path: str) -> dict[str, Any]:
        request = Request(self._url + path, headers=self._headers)  # noqa: S310  # settings take http only
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                answer = response.read(_ANSWER_BYTES_MAX)
                if response.length:
                    message = "its answer ends too early"
                    raise RegistryUnavailableError(message)
                return _fields(answer)
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                message = (
                    f"the certificate of the schema registry {self._url} is not vouched for"
                    f" ({reason.verify_message}); set HEADRACE_SCHEMA_REGISTRY_CA_FILE"
                )
                raise RegistryRefused(message) from error
            raise RegistryUnavailableError(str(reason)) from error

    def _refusal(self, error: HTTPError) -> Exception:
        busy = error.code == HTTPStatus.TOO_MANY_REQUESTS
        if busy or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RegistryUnavailableError(f"it answers {error.code}")
        answer = _fields(error.read(_ANSWER_BYTES_MAX))
        if answer.get("error_code") in _NOT_FOUND:
            return SchemaMissingError(str(answer.get("message", "not found")))
        if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return RegistryRefused(
                f"the schema registry {self._url} refuses us ({error.code}); check"
                " HEADRACE_SCHEMA_REGISTRY_USERNAME and HEADRACE_SCHEMA_REGISTRY_PASSWORD"
            )
        return RegistryRefused(
            f"{self._url} answers {error.code}, as no schema registry does; check"
            " HEADRACE_SCHEMA_REGISTRY_URL"
        )


def _text_of(answer: Mapping[str, Any], url: str) -> str:
    text = answer.get("schema")
    if isinstance(text, str):
        return text
    message = (
        f"{url} answers without a schema, as no schema registry does; check"
        " HEADRACE_SCHEMA_REGISTRY_URL"
    )
    raise RegistryRefused(message)


def _fields(answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
