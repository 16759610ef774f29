"""A schema registry on this machine that speaks Confluent's protocol over HTTP."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

USER, PASSWORD = "headrace", "open:sesame"
_BY_NUMBER = re.compile(r"/schemas/ids/(\d+)")
_BY_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+)")
_SUBJECT = re.compile(r"/subjects/([^/]+)")
_REGISTER = re.compile(r"/subjects/([^/]+)/versions")


class _Version(NamedTuple):
    number: int
    body: Mapping[str, Any]


class RegistryServer(ThreadingHTTPServer):
    """Answers until it is told otherwise."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "http" if context is None else "https"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.is_away = False
        """Whether it says that it is not available."""
        self.wants_login = False
        self.answer: tuple[int, bytes] | None = None
        """Said instead of anything else."""
        self.promises_bytes: int | None = None
        """How long it says that an answer is, where that is not true."""
        self.refuses: str | None = None
        """Why no schema fits the versions before it."""
        self.asked: list[str] = []
        self._subjects: dict[str, list[_Version]] = {}

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Register a schema as a producer does, over HTTP; its number."""
        body = {"schema": schema, "schemaType": kind, "references": references or []}
        split = urlsplit(self.url)
        connection = HTTPConnection(split.hostname or "", split.port)
        connection.request(
            "POST", f"/subjects/{quote(subject, safe='')}/versions", json.dumps(body)
        )
        with closing(connection):
            return int(json.load(connection.getresponse())["id"])

    def judge(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        """Return the status and the answer to a question."""
        if found := _BY_NUMBER.fullmatch(path):
            return self._one(int(found[1]), query)
        if found := _BY_VERSION.fullmatch(path):
            versions = self._subjects.get(unquote(found[1]), [])
            if not 0 < int(found[2]) <= len(versions):
                return 404, {"error_code": 40402, "message": f"Version {found[2]} not found."}
            return 200, _shown(versions[int(found[2]) - 1].body, query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def judge_sent(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the answer to a schema that is looked up, or registered."""
        if found := _REGISTER.fullmatch(path):
            if self.refuses is not None:
                return 409, {"error_code": 409, "message": self.refuses}
            return 200, {"id": self.put(unquote(found[1]), body)}
        found = _SUBJECT.fullmatch(path)
        assert found is not None
        subject = unquote(found[1])
        if subject not in self._subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for place, version in enumerate(self._subjects[subject], start=1):
            if json.loads(version.body["schema"]) == json.loads(body["schema"]):
                return 200, {**body, "subject": subject, "id": version.number, "version": place}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _one(self, number: int, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        for versions in self._subjects.values():
            for version in versions:
                if version.number == number:
                    return 200, _shown(version.body, query)
        return 404, {"error_code": 40403, "message": f"Schema {number} not found"}

    def numbers(self, subject: str) -> list[int]:
        """The numbers of a subject's schemas."""
        return [version.number for version in self._subjects.get(subject, [])]

    def put(self, subject: str, body: Mapping[str, Any]) -> int:
        """A new version of a subject; its number counts up from 1 over all."""
        number = 1 + sum(map(len, self._subjects.values()))
        self._subjects.setdefault(subject, []).append(_Version(number, body))
        return number


def _shown(body: Mapping[str, Any], query: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """A schema; Protobuf as text, unless its descriptor is asked for. Avro is not named."""
    shown = {name: one for name, one in body.items() if (name, one) != ("schemaType", "AVRO")}
    if body["schemaType"] == "PROTOBUF" and query.get("format") != ["serialized"]:
        shown["schema"] = 'syntax = "proto3";'
    return shown


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_POST(self) -> None:
        """A schema is registered, or looked up."""
        length = int(self.headers["Content-Length"])
        body = {"schemaType": "AVRO", **json.loads(self.rfile.read(length))}
        self._answer(lambda: self.server.judge_sent(self.path, body))

    def do_GET(self) -> None:
        """A schema is asked for."""
        self.server.asked.append(self.path)
        split = urlsplit(self.path)
        self._answer(lambda: self.server.judge(split.path, parse_qs(split.query)))

    def _answer(self, judge: Callable[[], tuple[int, Any]]) -> None:
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.server.answer is not None:
            self._send(*self.server.answer)
        elif self.server.is_away:
            self._say(503, {"error_code": 50003, "message": "Error while forwarding"})
        elif self.server.wants_login and self.headers["Authorization"] != f"Basic {login}":
            self._say(401, {"error_code": 401, "message": "Unauthorized"})
        else:
            self._say(*judge())

    def _say(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(self.server.promises_bytes or len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def registry_server(context: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """One that runs."""
    with RegistryServer(context) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:
            server.shutdown()
