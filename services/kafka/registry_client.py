"""A schema registry asked over HTTP, in Confluent's protocol: a schema by its number."""

from __future__ import annotations

import base64
import ssl
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, Request, build_opener

from headrace.contracts.errors import RegistryRefused
from headrace.contracts.serde.asked import (
    ACCEPTED,
    Denied,
    Foreign,
    Missing,
    NoAnswer,
    NoSchema,
    answered,
    schema_of,
)
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
                    f"the certificate of the schema registry {self._url} is not vouched for"
                    f" ({reason.verify_message}); set HEADRACE_SCHEMA_REGISTRY_CA_FILE"
                )
                raise RegistryRefused(message) from error
            raise RegistryUnavailableError(str(reason)) from error
        except NoAnswer as error:
            raise RegistryUnavailableError(str(error)) from error
        except Missing as missing:
            raise SchemaMissingError(str(missing)) from missing
        except Denied as error:
            message = (
                f"the schema registry {self._url} refuses us ({error.status}); check"
                " HEADRACE_SCHEMA_REGISTRY_USERNAME and HEADRACE_SCHEMA_REGISTRY_PASSWORD"
            )
            raise RegistryRefused(message) from error
        except Foreign as error:
            message = (
                f"{self._url} answers {error.status}, as no schema registry does; check"
                " HEADRACE_SCHEMA_REGISTRY_URL"
            )
            raise RegistryRefused(message) from error
