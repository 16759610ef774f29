"""A token server on this machine: hands out unsecured tokens (JWS without a signature)."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

CLIENT, SECRET = "headrace", "open+sesame:4711"


class TokenServer(ThreadingHTTPServer):
    """Answers until it is told otherwise."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.life_s = 60.0
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        """Said instead of a token."""
        self.says_life = True
        self.says_life_as: type[int | float | str] = int
        self.subject = CLIENT
        self.tokens: list[str] = []
        self.scopes: list[str] = []

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}/token"

    def token(self) -> bytes:
        """A new token, as it is sent."""
        now_s = time.time()  # noqa: TID251  # the broker compares it with its clock
        claims = {"sub": self.subject, "iat": now_s, "exp": now_s + self.life_s}
        text = f"{_base64({'alg': 'none'})}.{_base64(claims | {'n': len(self.tokens)})}."
        self.tokens.append(text)
        fields: dict[str, Any] = {"access_token": text, "token_type": "bearer"}
        if self.says_life:
            fields["expires_in"] = self.says_life_as(int(self.life_s))
        return json.dumps(fields).encode()


@contextmanager
def token_server() -> Iterator[TokenServer]:
    """One that runs."""
    with TokenServer() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.scopes += form.get("scope", [""])
        status, headers, body = self.server.answer or self._judge(form)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _judge(self, form: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        # RFC 6749: both are encoded as in a form before they are put together.
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        known = login == "headrace:open%2Bsesame%3A4711"
        if not known or form["grant_type"] != ["client_credentials"]:
            return 401, {}, b'{"error": "invalid_client"}'
        return 200, {}, self.server.token()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def _base64(fields: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
