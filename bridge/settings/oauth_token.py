"""The tokens of KAFKA_OAUTH_CB: a user's function gives them, and all Kafka clients of the process log in with them."""

import inspect
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from bridge.errors import SettingsError, TokenUnavailable
from bridge.kafka.clients import RepeatFilter, login_errors
from bridge.settings.address_values import hide_passwords_in
from bridge.settings.app_discovery import describe_import_error
from bridge.settings.imported_function import import_function
from lossless.background_thread import start_call

logger = logging.getLogger(__name__)
logger.addFilter(RepeatFilter())

#: Seconds that the function may take; less than the 10 that confluent-kafka waits for the first token of a client.
CALL_WITHIN: Final = 5.0
#: Seconds after which a call that has not returned is given up, and the function called again.
GIVEN_UP_AFTER: Final = 60.0
#: The share of a token's lifetime for which other clients get it too. librdkafka renews its own at 0.8 of the rest.
SHARED_FOR: Final = 0.5
#: A token that lasts longer is one whose lifetime is in milliseconds.
LONGEST: Final = 10 * 366 * 86_400.0
#: Seconds until a client asks again that began without a token.
ASKED_AGAIN_AFTER: Final = 2.0


class OAuthToken(NamedTuple):
    """A token, as confluent-kafka's `oauth_cb` returns it; the repr does not show it.

    Attributes:
        expires: seconds since the epoch.
    """

    value: str
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"OAuthToken(expires={self.expires})"


#: A JSON Web Token (RFC 7519): its header begins with `{"`.
_WEB_TOKEN: Final = re.compile(r"eyJ[\w-]{6,}(\.[\w-]*){0,4}")


class OAuthTokenSource:
    """The source of the tokens of all Kafka clients of a process.

    confluent-kafka asks in a thread of librdkafka, whether or not somebody polls the client. A client cannot be made
    without a token: its constructor raises after 10 s. One without a token begins with a placeholder, which Kafka
    refuses as it refuses any wrong login, and asks again.

    Parameters:
        setting: the name of the setting, for messages.
        name: `module:function`.
        function: takes librdkafka's `sasl.oauthbearer.config`, and returns (token, expires), or
            (token, expires, principal, extensions).
    """

    def __init__(self, setting: str, name: str, function: Callable[[str], Any]) -> None:
        self.words, self._function = f"{setting}={name}", function
        self._pid, self._lock = os.getpid(), Lock()
        self._token: OAuthToken | None = None
        self._shared_until = self._called_at = 0.0
        self._call: Future[Any] | None = None

    def __repr__(self) -> str:
        return f"OAuthTokenSource({self.words})"

    def make_callback(self, config: str) -> Callable[[str | None], tuple[Any, ...]]:
        """Return the `oauth_cb` of one client, which has the client's first token at hand."""
        first = [self._find_first_token(config)]

        def give_token(_: str | None) -> tuple[Any, ...]:
            return tuple(first.pop() if first else self.fetch(config))

        return give_token

    def fetch(self, config: str) -> OAuthToken:
        """Return a token of which at least half of the lifetime is left.

        Raises:
            TokenUnavailable: the function gave none.
        """
        self._follow_fork()
        with self._lock:
            if self._token is not None and time.time() < self._shared_until:
                return self._token
            try:
                token = self._read_answer(self._ask(config))
            except TokenUnavailable as error:
                logger.error("%s", error)
                if self._token is None or self._token.expires <= time.time():
                    login_errors.note_token(str(error))
                raise
            login_errors.note_token()
            now = time.time()
            self._token, self._shared_until = token, now + (token.expires - now) * SHARED_FOR
            return token

    def _find_first_token(self, config: str) -> OAuthToken:
        try:
            return self.fetch(config)
        except TokenUnavailable:
            known = self._token
            if known is not None and known.expires > time.time() + ASKED_AGAIN_AFTER:
                return known
            return OAuthToken("no-token", time.time() + ASKED_AGAIN_AFTER)

    def _follow_fork(self) -> None:
        """Forget what a thread of the parent process holds: a fork has no thread but its own."""
        if self._pid != os.getpid():
            self._pid, self._lock, self._call = os.getpid(), Lock(), None

    def _ask(self, config: str) -> Any:
        """Call the function in a thread; one that has not returned is waited for again, and after a minute given up."""
        if self._call is None or time.monotonic() >= self._called_at + GIVEN_UP_AFTER:
            self._called_at = time.monotonic()
            self._call = start_call("oauth token", partial(self._function, config))
        call, taken = self._call, time.monotonic() - self._called_at
        try:
            answer = call.result(max(0.0, CALL_WITHIN - taken))
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            if not call.done():
                taken = time.monotonic() - self._called_at
                raise self._failed(f"has not returned for {taken:.0f} s") from None
            self._call = None
            raise self._failed(f"raised {hide_passwords_in(describe_import_error(error))}") from None
        self._call = None
        return answer

    def _read_answer(self, answer: Any) -> OAuthToken:
        """Return the token of an answer; no message repeats what it has."""
        if not isinstance(answer, tuple) or not 2 <= len(answer) <= 4:
            raise self._failed(f"must return a tuple (token, expires), and returned {type(answer).__name__}")
        parts: list[Any] = ["", 0.0, "", {}]
        parts[: len(answer)] = answer
        value, expires, principal, extensions = parts
        if not isinstance(value, str) or not (value and value.isascii() and value.isprintable()):
            raise self._failed("must return the token first, as text of ASCII characters")
        if isinstance(expires, bool) or not isinstance(expires, int | float) or math.isnan(expires):
            raise self._failed("must return the time at which the token expires behind it, as a number")
        if not isinstance(principal, str) or not isinstance(extensions, dict):
            raise self._failed("may return a principal (text) and SASL extensions (a dict) behind these, and no more")
        left = expires - time.time()
        if left > LONGEST:
            raise self._failed("must return the expiry in seconds since the epoch; this one looks like milliseconds")
        if left <= 0:
            hint = "; this one looks like a duration: add time.time()" if expires < LONGEST else ""
            raise self._failed(f"returned a token that has expired: the expiry is in seconds since the epoch{hint}")
        return OAuthToken(value, float(expires), principal, extensions)

    def _failed(self, why: str) -> TokenUnavailable:
        # An exception's text may have the token that it is about, also one that was never given here.
        if self._token is not None:
            why = why.replace(self._token.value, "…")
        why = _WEB_TOKEN.sub("…", why)
        return TokenUnavailable(f"{self.words} {why}. Without a token no client can log in to Kafka.")


def load_token_source(setting: str, name: str) -> OAuthTokenSource:
    """Return the source of tokens that a setting names as `module:function`.

    Raises:
        SettingsError: there is no such function, or it cannot be called as it must be.
    """
    function = import_function(setting, name)
    if inspect.iscoroutinefunction(function):
        raise SettingsError([f"{setting}: {name} must be no async def: librdkafka waits for its answer in a thread."])
    # A function written in C may have no signature.
    with suppress(ValueError):
        try:
            inspect.signature(function).bind("")
        except TypeError:
            raise SettingsError(
                [f"{setting}: {name} must take one argument, the text of sasl.oauthbearer.config."]
            ) from None
    return OAuthTokenSource(setting, name, function)
