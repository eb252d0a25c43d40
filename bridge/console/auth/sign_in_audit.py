"""The audit entries of sign-ins, of those that failed too: of these a bounded number an hour."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bridge.deadletters.accounts.activity_kinds import (
    FAILED_SIGN_IN_KIND,
    NOT_SIGNED_IN,
    SIGN_IN_KIND,
    SIGN_OUT_KIND,
)
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import DeskUnavailable

logger = logging.getLogger("bridge")

#: The failed sign-ins of an hour that the audit log gets from one process: nothing is ever deleted from it, and whoever
#: guesses passwords from many addresses would fill it.
MAX_FAILED: Final = 200
_HOUR_MS: Final = 3_600_000


@dataclass
class SignInAudit:
    """The audit entries of sign-ins at one console process.

    Parameters:
        clock: ms of a monotonic clock.
    """

    desk: DeadLetterService = field(repr=False)
    clock: Callable[[], int] = field(default=lambda: time.monotonic_ns() // 1_000_000, repr=False)
    _began: int = field(default=0, init=False, repr=False)
    _failed: int = field(default=0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def signed_in(self, by: str, said: str) -> None:
        """Add an entry for a sign-in."""
        self.desk.trail.add(by, SIGN_IN_KIND, said)

    def signed_out(self, by: str) -> None:
        """Add an entry for a sign-out, which succeeds without the audit log, too."""
        self._add(by, SIGN_OUT_KIND, f"{by} signed out")

    def failed(self, said: str) -> None:
        """Add an entry for a sign-in that failed, unless there were too many in this hour.

        Parameters:
            said: without a name that no user has: people type passwords into that field.
        """
        with self._lock:
            if self.clock() - self._began >= _HOUR_MS or not self._failed:
                self._began, self._failed = self.clock(), 0
            self._failed += 1
            count = self._failed
        if count < MAX_FAILED:
            self._add(NOT_SIGNED_IN, FAILED_SIGN_IN_KIND, said)
        elif count == MAX_FAILED:
            said = f"{said}; more of this hour are in the log of the console alone"
            self._add(NOT_SIGNED_IN, FAILED_SIGN_IN_KIND, said)

    def _add(self, by: str, what: str, said: str) -> None:
        try:
            self.desk.trail.add(by, what, said)
        except DeskUnavailable as error:
            logger.warning("not in the audit log: %s: %s", what, error)
