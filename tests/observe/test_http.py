"""The server over real sockets: as probers and scrapers speak to it, and as they should not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from io import StringIO

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.contracts.errors import PortTaken, SettingsInvalid
from headrace.services.observe import logs
from headrace.services.observe.health import Watchdog
from headrace.services.observe.http import CONNECTIONS_MAX, HEAD_BYTES_MAX, serve
from headrace.services.observe.metrics import Metrics
from headrace.services.observe.pages import PLAIN, Answer, pages
from headrace.services.observe.snapshot import WorkerSnapshot
from tests.observe.examples import busy_worker, task, worker
from tests.observe.serving import HOST, PATIENCE_S, ask, connect, everything, say, serving

STALL_TIMEOUT_S = 10.0


class Worker:
    """One that can be told how to look, or to fail."""

    def __init__(self) -> None:
        self.shown: Callable[[], WorkerSnapshot] = lambda: worker(task())

    def snapshot(self) -> WorkerSnapshot:
        """How it looks now."""
        return self.shown()


@pytest.fixture
def running() -> Worker:
    return Worker()


@pytest.fixture
def port(running: Worker) -> Iterator[int]:
    metrics = Metrics(running.snapshot)
    watchdog = Watchdog(running.snapshot, STALL_TIMEOUT_S)
    with serving(pages(running.snapshot, metrics, watchdog)) as listening:
        yield listening


def test_a_worker_that_is_well(port: int) -> None:
    for path, sentence in (
        ("/live", "everything that is to be done moves\n"),
        ("/ready", "partitions that run: 1\n"),
    ):
        response, body = ask(port, path)
        assert (response.status, body) == (200, sentence)
        assert response.getheader("Content-Type") == PLAIN
        assert response.getheader("Cache-Control") == "no-store"
        assert response.getheader("Date")


def test_a_worker_that_is_stuck_is_not_alive_and_says_where(port: int, running: Worker) -> None:
    for at_s in range(12):
        running.shown = lambda at_s=at_s: worker(  # type: ignore[misc]
            task(uncommitted_records=3), taken_at_s=float(at_s)
        )
        response, body = ask(port, "/live")
        assert response.status == (503 if at_s >= STALL_TIMEOUT_S else 200)
    assert body.startswith("partition 3 of `clicks.raw` has not moved for 11 s while committing")
    assert ask(port, "/ready")[0].status == 200


def test_a_worker_that_restores_is_alive_and_not_ready(port: int, running: Worker) -> None:
    running.shown = lambda: worker(task(state="restoring"), state="restoring")
    assert ask(port, "/live")[0].status == 200
    response, body = ask(port, "/ready")
    assert (response.status, body) == (503, "state is being restored: clicks.raw/3\n")


def test_metrics(port: int, running: Worker) -> None:
    running.shown = busy_worker
    response, body = ask(port, "/metrics")
    assert response.status == 200
    assert response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(body)}
    assert {"headrace_taken_records", "headrace_lag_records", "process_cpu_seconds"} <= names


@pytest.mark.parametrize("path", ["/live", "/ready", "/nothing"])
def test_head_says_what_get_says_without_the_body(port: int, path: str) -> None:
    got, body = ask(port, path)
    head, nothing = ask(port, path, "HEAD")
    assert nothing == ""
    assert say(port, f"HEAD {path} HTTP/1.0\r\n\r\n".encode()) == (got.status, b"")
    assert head.status == got.status
    assert head.getheader("Content-Length") == str(len(body.encode()))


def test_other_pages_and_methods(port: int) -> None:
    response, body = ask(port, "/metric")
    assert (response.status, body) == (
        404,
        "there is no such page; there are /live, /ready, /metrics\n",
    )
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        response, body = ask(port, "/live", method)
        assert (response.status, body) == (405, "ask by GET or HEAD\n")
        assert response.getheader("Allow") == "GET, HEAD"


def test_a_snapshot_that_fails_is_one_answer_and_not_the_end(port: int, running: Worker) -> None:
    def fails() -> WorkerSnapshot:
        message = "customer-7"
        raise KeyError(message)

    lines = StringIO()
    logs.configure("json", "info", lines)
    running.shown = fails
    for path in ("/live", "/ready", "/metrics"):
        response, body = ask(port, path)
        assert (response.status, body) == (
            500,
            f"{path} could not be made (KeyError); see the log\n",
        )
    assert lines.getvalue().count("A page could not be made.") == 3
    assert "customer-7" not in lines.getvalue()
    running.shown = lambda: worker(task())
    assert ask(port, "/live")[0].status == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /live HTTP/1.0\r\n\r\n",
        b"GET /live?verbose=1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a:80/live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /live HTTP/1.1\r\nhOST:a\r\nAccept: */*\r\nContent-Length: 0\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\n\r\nGET /ready HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["plain", "1.0", "query", "absolute", "no body", "pipelined"],
)
def test_each_page_is_answered(port: int, request_bytes: bytes) -> None:
    assert say(port, request_bytes) == (200, b"everything that is to be done moves\n")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /live\r\n\r\n",
        b"GET  /live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /live HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /live HTTP/1.1\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /live HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=[
        "empty", "word", "0.9", "two spaces", "2.0", "relative", "asterisk", "no host",
        "two hosts", "space before colon", "folded", "bare newline", "nul", "body", "chunked",
        "tls", "too long",
    ],
)  # fmt: skip
def test_wrong_requests_are_refused(port: int, request_bytes: bytes) -> None:
    status, body = say(port, request_bytes)
    assert status == 400
    assert body.endswith(b"\n")
    assert ask(port, "/live")[0].status == 200


def test_a_client_that_writes_without_end_still_gets_its_answer(port: int) -> None:
    status, body = say(port, b"GET /live HTTP/1.1\r\n", b"X: " + b"a" * (16 << 20))
    assert (status, body) == (400, b"the request's head has more than 8192 bytes\n")


def test_a_request_in_pieces_is_whole_in_the_end(port: int) -> None:
    parts = [bytes([byte]) for byte in b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"]
    assert say(port, *parts)[0] == 200


def test_a_client_that_leaves_early_is_not_missed(port: int) -> None:
    for said in (b"", b"GET /li", b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"):
        with connect(port) as connection:
            connection.sendall(said)
    assert ask(port, "/live")[0].status == 200


def test_a_slow_client_is_told_so_and_holds_no_other_up() -> None:
    with serving(_pages(b"ok"), timeout_s=600) as port, connect(port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert ask(port, "/")[0].status == 200
    with serving(_pages(b"ok"), timeout_s=0.3) as port, connect(port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert everything(slow).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_drips_is_told_so_too() -> None:
    """Each byte comes in time; the whole request does not."""
    with serving(_pages(b"ok"), timeout_s=0.5) as port, connect(port) as slow:
        slow.settimeout(0.05)
        answer = b""
        started = time.monotonic()
        while not answer and time.monotonic() - started < 120:
            slow.sendall(b"X")
            try:
                answer = slow.recv(100)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_read_is_dropped() -> None:
    body = bytes(32 << 20)
    made = threading.Event()

    def large() -> Answer:
        made.set()
        return Answer(HTTPStatus.OK, PLAIN, body)

    # As long as this a client may take for its request, too.
    timeout_s = 3.0
    large_too = _pages(b"ok") | {"/large": large}
    with serving(large_too, timeout_s) as port, connect(port) as deaf:
        deaf.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        assert made.wait(PATIENCE_S)
        time.sleep(1.5 * timeout_s)  # this is the reader that does not read
        assert len(everything(deaf)) < len(body)
        assert ask(port, "/")[0].status == 200


def test_a_client_that_closes_its_side_at_once_gets_everything() -> None:
    """Also what the system does not take at once, and waits in the process."""
    body = bytes(_taken_at_once() + 30_000)
    with serving(_pages(body)) as port, connect(port) as half_open:
        half_open.sendall(b"GET / HTTP/1.0\r\n\r\n")
        half_open.shutdown(socket.SHUT_WR)
        time.sleep(0.2)  # this is a reader that takes its time
        assert everything(half_open).endswith(b"\r\n\r\n" + body)


def test_the_next_client_takes_the_place_of_the_one_that_was_idle_longest() -> None:
    with serving(_pages(b"ok"), timeout_s=60) as port, ExitStack() as idle:
        connections = [idle.enter_context(connect(port)) for _ in range(2 * CONNECTIONS_MAX)]
        assert ask(port, "/")[0].status == 200
        gone, here = connections[:CONNECTIONS_MAX], connections[-CONNECTIONS_MAX + 1 :]
        assert [_ends(connection) for connection in gone] == [True] * len(gone)
        for connection in here:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert all(everything(connection).endswith(b"ok") for connection in here)


def test_closing_does_not_wait_for_whoever_is_connected() -> None:
    lines = StringIO()
    logs.configure("json", "info", lines)
    with serving(_pages(b"ok"), timeout_s=600) as port:
        silent = connect(port)
        assert ask(port, "/")[0].status == 200
        started = time.monotonic()
    assert time.monotonic() - started < 300
    with silent:
        assert silent.recv(1) == b""
    with pytest.raises(ConnectionError):
        connect(port)
    assert lines.getvalue() == ""


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server((HOST, 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"^port {number} of 127\.0\.0\.1 is taken; set HEAD"):
            asyncio.run(serve(HOST, number, {}))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match=r"^nobody can listen at port 0 of 192\.0\.2\.1 "):
        asyncio.run(serve("192.0.2.1", 0, {}))


def _pages(body: bytes) -> dict[str, Callable[[], Answer]]:
    return {"/": lambda: Answer(HTTPStatus.OK, PLAIN, body)}


def _taken_at_once() -> int:
    """How many bytes a fresh connection takes before anybody reads."""
    with socket.create_server((HOST, 0)) as listening, connect(listening.getsockname()[1]):
        accepted, _ = listening.accept()
        with accepted:
            accepted.setblocking(False)  # noqa: FBT003 - its only argument
            return accepted.send(bytes(64 << 20))


def _ends(connection: socket.socket) -> bool:
    """Whether the other end has let go of a connection; waits until it has."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
