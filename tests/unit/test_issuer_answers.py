"""What an issuer of OpenID Connect, or who is in its place, cannot do to the console by its answers."""

import contextlib
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bridge.console.auth import oidc_client
from bridge.console.auth.oidc_client import get_json, post_form, read_endpoints
from bridge.errors import IssuerUnavailable

ISSUER = "https://sso.example.com"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[tuple[str, list[bytes]]]:
    """An issuer that answers each request by itself, byte for byte; its address, and the requests."""
    got: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = listening.accept()
                with contextlib.suppress(OSError), made:
                    got.append(made.recv(65_536))
                    answer(made)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/keys", got
        listening.shutdown(socket.SHUT_RDWR)


def say(body: bytes, head: bytes = HEAD) -> Callable[[socket.socket], object]:
    length = f"content-length: {len(body)}\r\n\r\n".encode()
    return lambda made: made.sendall(head + length + body)


def test_an_object_is_taken():
    with server(say(b'{"keys": []}')) as (address, _):
        assert get_json(address) == {"keys": []}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_takes_no_secret_elsewhere(status):
    with server(say(b"{}")) as (elsewhere, got):
        head = f"HTTP/1.1 {status} Moved\r\nlocation: {elsewhere}\r\n".encode()
        with server(say(b"{}", head)) as (address, _):
            with pytest.raises(IssuerUnavailable, match=f"it answers {status}"):
                get_json(address)
            assert post_form(address, {"code": "c"}, ("console", "s3cret")) == (status, {})
    assert got == []


def test_an_answer_that_is_too_large_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(oidc_client, "MAX_ISSUER_BYTES", 10_000)
    sent: list[int] = []

    def answer(made: socket.socket) -> None:
        made.sendall(HEAD + b"\r\n")
        while True:
            sent.append(made.send(b" " * 65_536))

    with server(answer) as (address, _), pytest.raises(IssuerUnavailable, match="too long"):
        get_json(address)
    assert sum(sent) < 50_000_000


def test_an_answer_that_is_large_only_unpacked_is_none(monkeypatch):
    unpacked: list[int] = []
    real = json.loads

    def load(body: bytes) -> Any:
        unpacked.append(len(body))
        return real(body)

    monkeypatch.setattr(json, "loads", load)
    packed = gzip.compress(json.dumps({"keys": " " * 50_000_000}).encode())
    with server(say(packed, HEAD + b"content-encoding: gzip\r\n")) as (address, got):
        with pytest.raises(IssuerUnavailable):
            get_json(address)
        assert b"accept-encoding: identity" in got[0].lower()
    assert [length for length in unpacked if length > len(packed)] == []


def test_an_answer_a_byte_at_a_time_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(oidc_client, "REQUEST_SECONDS", 0.5)

    def answer(made: socket.socket) -> None:
        made.sendall(HEAD + b"\r\n")
        while True:
            made.sendall(b" ")
            time.sleep(0.05)

    with server(answer) as (address, _):
        begun = time.monotonic()
        with pytest.raises(IssuerUnavailable, match="takes too long"):
            get_json(address)
        assert time.monotonic() - begun < 10


def test_headers_a_byte_at_a_time_are_given_up_in_time(monkeypatch):
    monkeypatch.setattr(oidc_client, "REQUEST_SECONDS", 0.5)

    def answer(made: socket.socket) -> None:
        made.sendall(HEAD)
        for _ in range(400):
            made.sendall(b"x")
            time.sleep(0.05)

    with server(answer) as (address, _):
        begun = time.monotonic()
        with pytest.raises(IssuerUnavailable):
            get_json(address)
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b"\xff", b"<html>", b"[" * 100_000], ids=lambda b: repr(b[:9])
)
def test_what_is_no_object_is_no_answer(body):
    with server(say(body)) as (address, _), pytest.raises(IssuerUnavailable, match="no JSON"):
        get_json(address)


def test_an_address_is_in_no_error():
    with pytest.raises(IssuerUnavailable) as raised:
        get_json("http://127.0.0.1:9/s3cret?a=s3cret")
    assert "s3cret" not in str(raised.value)


def document(**other: Any) -> dict[str, Any]:
    doors = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
    return {"issuer": ISSUER, **{name: f"{ISSUER}/{path}" for name, path in doors.items()}, **other}


def test_the_document_of_the_issuer_is_taken():
    assert read_endpoints(document(), ISSUER).token == f"{ISSUER}/token"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"issuer": "https://evil.example.com"}, "not of this issuer"),
        ({"issuer": f"{ISSUER}/"}, "not of this issuer"),
        ({"issuer": None}, "not of this issuer"),
        ({"token_endpoint": "http://sso.example.com/token"}, "without https"),
        ({"jwks_uri": "http://sso.example.com/keys"}, "without https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "without https"),
        ({"authorization_endpoint": f"{ISSUER}/\r\nx: y"}, "without https"),
        ({"token_endpoint": f"https://me@{ISSUER[8:]}/token"}, "without https"),
        ({"jwks_uri": None}, "without https"),
        ({"jwks_uri": ["https://sso.example.com/keys"]}, "without https"),
    ],
    ids=repr,
)
def test_a_document_of_another_issuer_or_without_tls_is_refused(other, words):
    with pytest.raises(IssuerUnavailable, match=words):
        read_endpoints(document(**other), ISSUER)


def test_a_lookup_that_takes_too_long_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(oidc_client, "REQUEST_SECONDS", 0.2)
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20) and [])
    try:
        with pytest.raises(IssuerUnavailable, match="takes too long"):
            get_json("https://sso.example.com/keys")
        assert not over.is_set()
    finally:
        over.set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_endpoint_auth_methods_supported": 5},
        {"token_endpoint_auth_methods_supported": "client_secret_basic"},
        {"jwks_uri": f"{ISSUER}/keys?é"},
        {"authorization_endpoint": f"{ISSUER}/way?a\nb"},
    ],
)
def test_a_malformed_document_makes_the_issuer_unavailable(wrong: dict[str, Any]):
    named = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    with pytest.raises(IssuerUnavailable):
        read_endpoints({"issuer": ISSUER, **dict.fromkeys(named, f"{ISSUER}/a"), **wrong}, ISSUER)
