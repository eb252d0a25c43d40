"""Bearer tokens of the API, and the wait of an address that sends wrong tokens."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bridge.console.auth.authorization import Principal
from bridge.console.auth.login_throttle import LoginThrottle
from bridge.deadletters.accounts.api_token import digest_secret, name_token_user
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import RequestRefused

logger = logging.getLogger("bridge")

#: The ms for which a token that was right is still checked while its address must wait; and how many are remembered.
REMEMBERED_MS: Final = 3_600_000
MAX_REMEMBERED: Final = 1_000
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="bridge"'}
_WRONG_TOKEN: Final = {"www-authenticate": 'Bearer realm="bridge", error="invalid_token"'}


@dataclass
class BearerTokens:
    """The bearer tokens that one console process has checked.

    Parameters:
        clock: ms since the epoch.
    """

    desk: DeadLetterService = field(repr=False)
    login_throttle: LoginThrottle = field(repr=False)
    clock: Callable[[], int] = field(repr=False)
    _right: dict[bytes, int] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def who(self, said: str | None, address: str) -> Principal:
        """Return the principal of a request to the API.

        Parameters:
            said: the header `Authorization`.
            address: the address for which wrong tokens are counted.

        Raises:
            RequestRefused: it has no token, or a wrong one; or its address must wait.
        """
        kind, _, secret = (said or "").partition(" ")
        secret = secret.strip()
        if kind.lower() != "bearer" or not secret:
            raise RequestRefused(
                "unauthorized",
                "Send `Authorization: Bearer` with a token (bridge deadletters users tokens make). A session of the "
                "console opens no API.",
                _CHALLENGE,
            )
        now = self.clock()
        if (left := self.login_throttle.waits(address)) and not self._was_right(secret):
            seconds = max(1, left // 1000)
            raise RequestRefused(
                "slow-down",
                f"Too many wrong tokens came from this address: it waits {seconds} s, and none was tried.",
                {"retry-after": str(seconds)},
            )
        token = self.desk.tokens.who(secret, now)
        if token is None:
            self.login_throttle.wrong(address)
            logger.warning("console: wrong token address=%s", address)
            raise RequestRefused(
                "unauthorized",
                "The token is unknown, expired or revoked. An admin creates tokens under Tokens, or by "
                "`bridge deadletters users tokens make`.",
                _WRONG_TOKEN,
            )
        self._remember(secret)
        role, mark = Role.read(token.role) or Role.NOBODY, digest_secret(secret).hex()
        return Principal(name_token_user(token), role, mark, signs_out=False, scope=token.scope)

    def _was_right(self, secret: str) -> bool:
        now = self.login_throttle.clock()
        with self._lock:
            return now - self._right.get(digest_secret(secret), now - REMEMBERED_MS) < REMEMBERED_MS

    def _remember(self, secret: str) -> None:
        with self._lock:
            self._right.pop(digest_secret(secret), None)
            self._right[digest_secret(secret)] = self.login_throttle.clock()
            if len(self._right) > MAX_REMEMBERED:
                del self._right[next(iter(self._right))]
