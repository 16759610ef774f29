"""OAuth tokens: fetched once for all, renewed in time, refused in a sentence, never shown."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from headrace.contracts.errors import HeadraceError, TokenRefused, TokenUnavailable
from headrace.services.kafka import tokens
from headrace.services.kafka.tokens import TokenProvider
from tests.runtime.token_server import CLIENT, SECRET, TokenServer, token_server


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


def _provider(url: str, secret: str = SECRET, scope: str | None = None) -> TokenProvider:
    return TokenProvider(url, CLIENT, secret, scope, ssl.create_default_context())


def _ask(provider: TokenProvider) -> str:
    return asyncio.run(provider.token())


def _error(provider: TokenProvider) -> HeadraceError:
    with pytest.raises((TokenRefused, TokenUnavailable)) as caught:
        _ask(provider)
    assert isinstance(caught.value, OSError)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert "b3Blbi" not in shown
    return caught.value


def test_one_token_serves_all_clients_of_all_threads(server: TokenServer) -> None:
    provider = _provider(server.url, scope="kafka records")

    async def many() -> list[str]:
        return await asyncio.gather(*(provider.token() for _ in range(10)))

    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.extend(asyncio.run(many()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == server.tokens * 40
    assert server.scopes == ["kafka records"]


def test_it_is_renewed_before_it_ends(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(tokens, "now_s", lambda: now_s)
    server.life_s = 20
    provider = _provider(server.url)
    first = _ask(provider)
    now_s += 15
    assert _ask(provider) == first
    now_s += 4.9
    assert _ask(provider) != first
    assert len(server.tokens) == 2


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no clock counts while it sleeps")
def test_a_token_ends_while_the_machine_sleeps(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_s, clock_gettime = 0.0, time.clock_gettime

    def clock_s(clock: int) -> float:
        return clock_gettime(clock) + (slept_s if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_s)
    server.life_s = 86_400
    provider = _provider(server.url)
    first = _ask(provider)
    slept_s = 86_400.0
    assert _ask(provider) == server.tokens[-1] != first


def test_a_token_whose_life_nobody_states_is_used_once(server: TokenServer) -> None:
    server.says_life = False
    provider = _provider(server.url)
    assert [_ask(provider), _ask(provider)] == server.tokens
    assert len(server.tokens) == 2


@pytest.mark.parametrize("kind", [float, str])
def test_a_life_may_be_a_fraction_or_text(
    server: TokenServer, kind: type[int | float | str]
) -> None:
    server.says_life_as = kind
    provider = _provider(server.url)
    assert _ask(provider) == _ask(provider)
    assert len(server.tokens) == 1


def test_while_the_server_is_away_the_token_at_hand_is_used_until_it_ends(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(tokens, "now_s", lambda: now_s)
    server.life_s = 20
    provider = _provider(server.url)
    first = _ask(provider)
    server.answer = (503, {}, b"")
    now_s += 19.9
    assert _ask(provider) == first
    assert "answers 503; the token at hand is used as long as it is valid" in caplog.text
    assert first not in caplog.text
    now_s += 0.1
    error = _error(provider)
    assert str(error) == f"the token server {server.url} answers 503"
    server.answer = None
    assert _ask(provider) == server.tokens[-1] != first


@pytest.mark.parametrize("status", [408, 429, 500])
def test_a_server_that_may_answer_later_refuses_nobody(server: TokenServer, status: int) -> None:
    server.answer = (status, {}, b"")
    error = _error(_provider(server.url))
    assert isinstance(error, TokenUnavailable)
    assert str(error) == f"the token server {server.url} answers {status}"


def test_a_wrong_secret_is_a_sentence(server: TokenServer) -> None:
    error = _error(_provider(server.url, secret="wrong"))  # noqa: S106
    assert isinstance(error, TokenRefused)
    assert error.exit_code == 2
    assert str(error) == (
        f"the token server {server.url} refuses client `headrace` (401, invalid_client);"
        " check HEADRACE_OAUTH_CLIENT_ID and its secret"
    )


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"{}", b"[]", b'{"access_token": 1}', b'{"access_token": "a b"}', b"\xff"],
)
def test_an_answer_without_a_token_is_a_sentence(server: TokenServer, body: bytes) -> None:
    server.answer = (200, {}, body)
    assert str(_error(_provider(server.url))) == (
        f"the token server {server.url} answers without a token;"
        " check that HEADRACE_OAUTH_TOKEN_URL is its token endpoint"
    )


@pytest.mark.parametrize("life", ["1" + 400 * "0", '"1' + 5_000 * "0" + '"'])
def test_a_token_whose_life_nobody_can_count_is_used_once(server: TokenServer, life: str) -> None:
    server.answer = (200, {}, b'{"access_token": "a", "expires_in": %b}' % life.encode())
    provider = _provider(server.url)
    assert [_ask(provider), _ask(provider)] == ["a", "a"]
    assert len(server.scopes) == 2


@pytest.mark.parametrize("body", [b"6\r\nhalf", b"zz\r\n", 100_000 * b"["])
def test_a_refusal_that_nobody_can_read_is_a_refusal(server: TokenServer, body: bytes) -> None:
    coding = {} if body.startswith(b"[") else {"Transfer-Encoding": "chunked"}
    server.answer = (403, coding, body)
    error = _error(_provider(server.url))
    assert isinstance(error, TokenRefused)
    assert "refuses client `headrace` (403, Forbidden)" in str(error)


def test_a_redirect_is_not_followed_with_the_secret(server: TokenServer) -> None:
    with token_server() as other:
        server.answer = (302, {"Location": other.url}, b"")
        error = _error(_provider(server.url))
        assert "refuses client `headrace` (302, Found)" in str(error)
        assert other.scopes == []


def test_an_address_that_does_not_answer_is_a_sentence(free_port: int) -> None:
    error = _error(_provider(f"http://127.0.0.1:{free_port}/token"))
    assert isinstance(error, TokenUnavailable)
    assert error.exit_code == 3
    assert "does not answer ([Errno 111] Connection refused); check" in str(error)


def test_a_server_that_speaks_something_else_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/token"

        def answer() -> None:
            with listening.accept()[0] as connection:
                asked = b""
                while b"client_credentials" not in asked:
                    asked += connection.recv(1 << 16)
                connection.sendall(b"220 mail.example.org\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        error = _error(_provider(url))
        answering.join()
    assert isinstance(error, TokenUnavailable)
    assert str(error) == (
        f"the token server {url} does not answer (220 mail.example.org\r\n);"
        " check HEADRACE_OAUTH_TOKEN_URL, and that it runs"
    )


def test_no_secret_is_logged(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = _ask(_provider(server.url))
    assert SECRET not in caplog.text
    assert token not in caplog.text
