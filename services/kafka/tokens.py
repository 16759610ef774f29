"""OAuth tokens by client credentials: fetched when needed, shared by all clients, renewed in time.

Clients live in several threads, each with its own event loop, so the one lock here is a thread's.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import ssl
from email.message import Message
from http.client import HTTPException
from math import isfinite
from threading import Lock
from typing import IO, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from aiokafka.abc import AbstractTokenProvider

from headrace.contracts.errors import TokenRefused, TokenUnavailable
from headrace.contracts.servers import fields_in, may_answer_later
from headrace.services.kafka.fenced import now_s

_TIMEOUT_S = 10.0
_LIFE_USED = 0.8
"""How much of a token's life may pass before the next is fetched; Kafka's own clients' figure."""
_ANSWER_BYTES_MAX = 1 << 20
_LIFE_DIGITS_MAX = 15
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The tokens that RFC 6750 allows; nothing else may get into the login message."""

_logger = logging.getLogger(__name__)


class _Token(NamedTuple):
    text: str
    renewed_at_s: float
    ends_at_s: float


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Hands every client of the process the same token, and fetches the next before it ends."""

    def __init__(
        self, url: str, client_id: str, secret: str, scope: str | None, context: ssl.SSLContext
    ) -> None:
        self._url = url
        self._client_id = client_id
        self._request = _token_request(url, client_id, secret, scope)
        self._opener = build_opener(HTTPSHandler(context=context), NoRedirect)
        self._lock = Lock()
        self._token: _Token | None = None

    async def token(self) -> str:
        """A token that is valid now, or TokenRefused, or TokenUnavailable."""
        token = self._token
        if token is None or now_s() >= token.renewed_at_s:
            token = await asyncio.to_thread(self._renewed)
        return token.text

    def _renewed(self) -> _Token:
        with self._lock:
            token, asked_at_s = self._token, now_s()
            # Another client may have fetched one while this one waited.
            if token is not None and asked_at_s < token.renewed_at_s:
                return token
            try:
                self._token = self._fetch(asked_at_s)
            except OSError as error:
                if token is None or asked_at_s >= token.ends_at_s:
                    raise
                _logger.warning("%s; the token at hand is used as long as it is valid", error)
                return token
            return self._token

    def _fetch(self, asked_at_s: float) -> _Token:
        try:
            with self._opener.open(self._request, timeout=_TIMEOUT_S) as response:
                answer = fields_in(response.read(_ANSWER_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            message = (
                f"the token server {self._url} does not answer ({_cause(error)});"
                " check HEADRACE_OAUTH_TOKEN_URL, and that it runs"
            )
            raise TokenUnavailable(message) from error
        text, life_s = answer.get("access_token"), _seconds(answer.get("expires_in"))
        if not isinstance(text, str) or not _TOKEN.fullmatch(text):
            message = (
                f"the token server {self._url} answers without a token;"
                " check that HEADRACE_OAUTH_TOKEN_URL is its token endpoint"
            )
            raise TokenRefused(message)
        return _Token(text, asked_at_s + _LIFE_USED * life_s, asked_at_s + life_s)

    def _refusal(self, error: HTTPError) -> OSError:
        # Busy and broken servers say so; asking again later may help, with the rest not.
        if may_answer_later(error.code):
            return TokenUnavailable(f"the token server {self._url} answers {error.code}")
        try:
            answer = error.read(_ANSWER_BYTES_MAX)
        except (OSError, HTTPException):
            answer = b""
        reason = fields_in(answer).get("error", error.reason)
        message = (
            f"the token server {self._url} refuses client `{self._client_id}`"
            f" ({error.code}, {reason}); check HEADRACE_OAUTH_CLIENT_ID and its secret"
        )
        return TokenRefused(message)


class NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the secret to another server; it is answered as an error."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """None is no."""
        del req, fp, code, msg, headers, newurl


def _token_request(url: str, client_id: str, secret: str, scope: str | None) -> Request:
    login = f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()
    form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(login).decode()}",
    }
    return Request(url, urlencode(form).encode(), headers)  # noqa: S310  # settings take http only


def _seconds(life: object) -> int:
    """A token's life; over at once where the server states none, to be on the safe side."""
    if isinstance(life, float) and isfinite(life):
        return max(0, int(life))
    text = str(life) if isinstance(life, int | str) else ""
    return int(text) if text.isdecimal() and len(text) <= _LIFE_DIGITS_MAX else 0


def _cause(error: OSError | HTTPException) -> object:
    return getattr(error, "reason", None) or error
