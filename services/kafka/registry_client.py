"""A schema registry asked over HTTP, in Confluent's protocol: a schema by its number."""

from __future__ import annotations

import base64
import ssl
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, Request, build_opener

from headrace.contracts.errors import RegistryRefused
from headrace.contracts.serde.asked import ACCEPTED, NoSchema, fields_of, missing_in, schema_of
from headrace.contracts.serde.registered import Schema
from headrace.services.kafka.tokens import NoRedirect

_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 16 << 20


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
        self._headers = {"Accept": ACCEPTED}
        if login is not None:
            encoded = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        handlers = [] if context is None else [HTTPSHandler(context=context)]
        self._opener = build_opener(NoRedirect, *handlers)

    def schema(self, number: int) -> Schema:
        """The schema of a number, with all that it refers to."""
        try:
            return schema_of(number, self._ask)
        except NoSchema as error:
            message = (
                f"{self._url} answers without a schema, as no schema registry does; check"
                " HEADRACE_SCHEMA_REGISTRY_URL"
            )
            raise RegistryRefused(message) from error

    def _ask(self, path: str) -> dict[str, Any]:
        request = Request(self._url + path, headers=self._headers)  # noqa: S310  # settings take http only
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                answer = response.read(_ANSWER_BYTES_MAX)
                if response.length:
                    message = "its answer ends too early"
                    raise RegistryUnavailableError(message)
                return fields_of(answer)
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
        missing = missing_in(fields_of(error.read(_ANSWER_BYTES_MAX)))
        if missing is not None:
            return SchemaMissingError(missing)
        if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return RegistryRefused(
                f"the schema registry {self._url} refuses us ({error.code}); check"
                " HEADRACE_SCHEMA_REGISTRY_USERNAME and HEADRACE_SCHEMA_REGISTRY_PASSWORD"
            )
        return RegistryRefused(
            f"{self._url} answers {error.code}, as no schema registry does; check"
            " HEADRACE_SCHEMA_REGISTRY_URL"
        )
