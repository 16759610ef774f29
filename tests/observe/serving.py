"""A server on its own thread, and what speaks to it as prober, scraper and nuisance."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse

from headrace.services.observe.http import Server, serve
from headrace.services.observe.pages import Page

HOST = "127.0.0.1"
PATIENCE_S = 60.0


@contextmanager
def serving(pages: Mapping[str, Page], timeout_s: float = PATIENCE_S) -> Iterator[int]:
    """The port of a server that listens until the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server: Server = asyncio.run_coroutine_threadsafe(
            serve(HOST, 0, pages, timeout_s), loop
        ).result(PATIENCE_S)
        try:
            yield server.port
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def ask(port: int, path: str, method: str = "GET") -> tuple[HTTPResponse, str]:
    """A proper request."""
    connection = HTTPConnection(HOST, port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def connect(port: int) -> socket.socket:
    """A connection on which nothing was said yet."""
    return socket.create_connection((HOST, port), timeout=PATIENCE_S)


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def say(port: int, *parts: bytes) -> tuple[int, bytes]:
    """Bytes as they are; the status and the body of the answer."""
    with connect(port) as connection:
        for part in parts:
            connection.sendall(part)
        answer = everything(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body
