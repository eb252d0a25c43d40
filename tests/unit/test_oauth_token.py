"""KAFKA_OAUTH_CB: a user's function gives the tokens of all clients, and nothing that it does stops them or leaks."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bridge.errors import SettingsError, TokenUnavailable
from bridge.kafka import clients
from bridge.kafka.clients import admin_client
from bridge.settings import oauth_token
from bridge.settings.oauth_token import OAuthTokenSource

SECRET = "eyJhbGciOi.secret.token"


@pytest.fixture(autouse=True)
def errors(monkeypatch: pytest.MonkeyPatch) -> clients.LoginErrors:
    """The login errors of a process of its own."""
    made = clients.LoginErrors()
    monkeypatch.setattr(clients, "login_errors", made)
    monkeypatch.setattr(oauth_token, "login_errors", made)
    return made


def source(function: Callable[[str], Any]) -> OAuthTokenSource:
    return OAuthTokenSource("KAFKA_OAUTH_CB", "shop.logins:token", function)


def lasting(seconds: float) -> Callable[[str], Any]:
    return lambda _: (SECRET, time.time() + seconds)


def fault(function: Callable[[str], Any]) -> str:
    with pytest.raises(TokenUnavailable) as refused:
        source(function).fetch("")
    assert SECRET not in str(refused.value)
    assert str(refused.value).startswith("KAFKA_OAUTH_CB=shop.logins:token ")
    return str(refused.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SECRET, "must return a tuple (token, expires), and returned str"),
        (None, "must return a tuple (token, expires), and returned NoneType"),
        ((SECRET,), "must return a tuple (token, expires)"),
        ((SECRET.encode(), 4e9), "must return the token first, as text"),
        (("", 4e9), "must return the token first, as text"),
        ((SECRET, "soon"), "as a number"),
        ((SECRET, True), "as a number"),
        ((SECRET, float("nan")), "as a number"),
        ((SECRET, 900), "looks like a duration: add time.time()"),
        ((SECRET, time.time() - 5), "returned a token that has expired"),
        ((SECRET, time.time() * 1000), "looks like milliseconds"),
        ((SECRET, time.time() + 60, 7), "may return a principal (text)"),
    ],
)
def test_an_answer_that_is_no_token_is_named_with_the_setting_and_not_repeated(answer: Any, words: str):
    assert words in fault(lambda _: answer)


def test_while_no_client_has_a_token_the_fault_of_the_function_explains_why_kafka_refuses_them(
    errors: clients.LoginErrors, monkeypatch: pytest.MonkeyPatch
):
    now, lasts = time.time(), 60.0
    is_down = True
    monkeypatch.setattr(time, "time", lambda: now)
    refused = clients.KafkaError(clients.KafkaError._AUTHENTICATION, 'error: {"status":"invalid_token"}')
    silent = clients.KafkaError(clients.KafkaError._TRANSPORT, "Broker transport failure")

    def token(_: str) -> Any:
        if is_down:
            raise ConnectionError("the issuer is down")
        return SECRET, now + lasts

    def explains() -> list[bool]:
        return ["raised ConnectionError: the issuer is down" in clients.explain_error(e) for e in (refused, silent)]

    tokens = source(token)
    assert tokens.make_callback("")("")[0] == "no-token"
    assert explains() == [True, True]
    is_down = False
    tokens.fetch("")
    assert explains() == [False, False]
    # The clients still have a token: another fault is Kafka's.
    is_down, now = True, now + 45
    with pytest.raises(TokenUnavailable):
        tokens.fetch("")
    assert explains() == [False, False]
    now += 16
    with pytest.raises(TokenUnavailable):
        tokens.fetch("")
    assert explains() == [True, True]


def test_an_exception_of_the_function_is_said_with_its_line():
    def token(_: str) -> Any:
        raise KeyError("ISSUER")

    assert "raised KeyError: 'ISSUER' (" in fault(token)
    assert "test_oauth_token.py, line" in fault(token)
    assert "raised SystemExit" in fault(lambda _: exit(3))


def test_a_token_in_the_text_of_an_error_is_not_repeated_though_it_was_never_given() -> None:
    def token(_: str) -> Any:
        raise ValueError(f"refused {SECRET} by the issuer")

    assert "raised ValueError: refused … by the issuer" in fault(token)


def test_a_function_that_hangs_is_waited_for_once_and_not_called_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(oauth_token, "CALL_WITHIN", 0.05)
    ended, calls = threading.Event(), []

    def token(_: str) -> Any:
        calls.append(1)
        ended.wait(30)
        return SECRET, time.time() + 60

    hung = source(token)
    for _ in range(2):
        with pytest.raises(TokenUnavailable, match="has not returned for"):
            hung.fetch("")
    ended.set()
    hung._call.result(5)  # type: ignore[union-attr]
    assert hung.fetch("").value == SECRET
    assert calls == [1]


def test_a_call_that_never_returns_is_given_up_after_a_minute(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(oauth_token, "CALL_WITHIN", 0.05)
    ended, calls = threading.Event(), []

    def token(_: str) -> Any:
        calls.append(1)
        if len(calls) == 1:
            ended.wait(30)
        return SECRET, time.time() + 60

    hung = source(token)
    with pytest.raises(TokenUnavailable, match="has not returned for"):
        hung.fetch("")
    hung._called_at -= oauth_token.GIVEN_UP_AFTER
    monkeypatch.setattr(oauth_token, "CALL_WITHIN", 5)
    assert hung.fetch("").value == SECRET
    ended.set()


def test_a_function_that_raises_timeouterror_has_returned():
    def token(_: str) -> Any:
        raise TimeoutError("the issuer")

    assert "raised TimeoutError: the issuer" in fault(token)


def test_clients_share_a_token_for_half_of_its_lifetime(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    now = time.time()
    monkeypatch.setattr("bridge.settings.oauth_token.time.time", lambda: now)

    def token(config: str) -> Any:
        calls.append(config)
        return f"{SECRET}{len(calls)}", now + 100

    shared = source(token)
    assert shared.fetch("a=b").value == shared.fetch("a=b").value
    monkeypatch.setattr("bridge.settings.oauth_token.time.time", lambda: now + 49)
    assert shared.fetch("a=b").value == f"{SECRET}1"
    monkeypatch.setattr("bridge.settings.oauth_token.time.time", lambda: now + 51)
    assert shared.fetch("a=b").value == f"{SECRET}2"
    assert calls == ["a=b", "a=b"]


def test_neither_a_log_nor_a_repr_shows_a_token(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    now = time.time()
    answers: list[Any] = [(SECRET, now + 60)]

    def token(_: str) -> Any:
        if answers:
            return answers.pop()
        raise ValueError(f"{SECRET} was refused")

    told = source(token)
    got = told.fetch("")
    assert SECRET not in f"{told!r} {got!r} {got}"
    monkeypatch.setattr("bridge.settings.oauth_token.time.time", lambda: now + 61)
    with caplog.at_level(logging.DEBUG), pytest.raises(TokenUnavailable, match="raised ValueError: … was refused"):
        told.fetch("")
    assert "was refused" in caplog.text
    assert SECRET not in caplog.text


def test_a_client_is_made_without_a_token_and_logs_in_once_the_function_gives_one():
    given = threading.Event()
    calls: list[float] = []

    def token(_: str) -> Any:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise ConnectionError("the issuer is down")
        given.set()
        return SECRET, time.time() + 60

    properties = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": source(token),
    }
    admin = admin_client(properties)
    # Nobody polls it.
    assert given.wait(15)
    assert len(calls) == 2
    del admin


async def _awaited(_: str) -> tuple[str, float]:
    return SECRET, 0.0


def _without_config() -> tuple[str, float]:
    return SECRET, 0.0


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_awaited, "must be no async def"),
        (_without_config, "must take one argument, the text of sasl.oauthbearer.config"),
    ],
)
def test_a_function_that_cannot_be_called_as_it_must_be_is_a_fault_of_the_settings(
    function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=f"KAFKA_OAUTH_CB: .*{words}"):
        oauth_token.load_token_source("KAFKA_OAUTH_CB", f"{__name__}:{function.__name__}")
