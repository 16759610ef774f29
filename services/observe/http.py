"""A small, strict HTTP server for a few pages; one request a connection.

A prober and a scraper ask it every few seconds. So it has no keep-alive, no body and no
compression, and it bounds everything: the head's bytes, the time of an exchange, and the number of
connections. If a connection fails, the server lives and answers the next one: a prober that finds
no room would end a worker that is well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from email.utils import formatdate
from errno import EADDRINUSE
from http import HTTPStatus

from headrace.contracts.errors import PortTaken, SettingsInvalid
from headrace.services.observe.logs import logger
from headrace.services.observe.pages import Answer, Page, sentence
from headrace.services.observe.request import Malformed, Request, read_head

HEAD_BYTES_MAX = 8_192
CONNECTIONS_MAX = 64
TIMEOUT_S = 5.0
_log = logger(__name__)


class Server:
    """A server that listens."""

    def __init__(self, pages: Mapping[str, Page], timeout_s: float) -> None:
        """Answer with `pages`; use `serve` to make one."""
        self._pages = pages
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._exchanges: dict[asyncio.Task[None], None] = {}
        """In the order in which they came."""

    async def listen(self, host: str, port: int) -> None:
        """Begin to answer; 0 is any free port."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=HEAD_BYTES_MAX)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening, and drop who is still being answered."""
        assert self._server is not None
        self._server.close()
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = asyncio.current_task()
        assert exchange is not None
        if len(self._exchanges) >= CONNECTIONS_MAX:
            longest_here = next(iter(self._exchanges))
            del self._exchanges[longest_here]
            longest_here.cancel()
        self._exchanges[exchange] = None
        try:
            # A task that ends as cancelled is an error in asyncio's log; only we cancel it.
            with suppress(ConnectionError, TimeoutError, asyncio.CancelledError):
                await self._exchange(reader, writer)
        finally:
            self._exchanges.pop(exchange, None)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await self._read(reader)
        if request is None:
            return
        answer = self._answer(request)
        has_body = not (isinstance(request, Request) and request.method == "HEAD")
        async with asyncio.timeout(self._timeout_s):
            writer.write(_bytes(answer, has_body=has_body))
            await writer.drain()
            writer.write_eof()
            # Closed while the other end still writes, a socket takes back what it was given.
            while await reader.read(HEAD_BYTES_MAX):
                pass
            writer.close()
            await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> Request | Malformed | Answer | None:
        """The request; an answer where there is none to be had, None where nobody waits for it."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return read_head(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return Malformed(f"the request's head has more than {HEAD_BYTES_MAX} bytes")
        except asyncio.IncompleteReadError:
            return None
        except TimeoutError:
            return sentence(
                HTTPStatus.REQUEST_TIMEOUT, f"the request was not whole after {self._timeout_s} s"
            )

    def _answer(self, request: Request | Malformed | Answer) -> Answer:
        if isinstance(request, Answer):
            return request
        if isinstance(request, Malformed):
            return sentence(HTTPStatus.BAD_REQUEST, request.sentence)
        page = self._pages.get(request.path)
        if page is None:
            known = ", ".join(self._pages)
            return sentence(HTTPStatus.NOT_FOUND, f"there is no such page; there are {known}")
        if request.method not in {"GET", "HEAD"}:
            return sentence(HTTPStatus.METHOD_NOT_ALLOWED, "ask by GET or HEAD")
        try:
            return page()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the next page may work
            _log.error("A page could not be made.", page=request.path, exc_info=problem)
            text = f"{request.path} could not be made ({type(problem).__name__}); see the log"
            return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, text)


async def serve(
    host: str, port: int, pages: Mapping[str, Page], timeout_s: float = TIMEOUT_S
) -> Server:
    """Listen at an address; `port` 0 is any that is free, and `Server.port` says which."""
    server = Server(pages, timeout_s)
    try:
        await server.listen(host, port)
    except OSError as problem:
        if problem.errno == EADDRINUSE:
            message = f"port {port} of {host} is taken; set HEADRACE_HTTP_PORT to another one"
            raise PortTaken(message) from problem
        message = (
            f"nobody can listen at port {port} of {host} ({problem.strerror});"
            " set HEADRACE_HTTP_HOST and HEADRACE_HTTP_PORT to an address of this machine"
        )
        raise SettingsInvalid(message) from problem
    return server


def _bytes(answer: Answer, *, has_body: bool) -> bytes:
    """An answer as it is sent."""
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join([*lines, "", ""]).encode("ascii")
    return head + answer.body if has_body else head
