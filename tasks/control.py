"""What was decided for a group, as a worker's process knows it: read from Redis at most once a second.

While Redis does not answer, and after it was wiped, what was known last holds until a bridge has put back what Kafka
has: a topic that is halted does not go on because nobody can be asked.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import BridgeError
from bridge.ledger import Ledger
from bridge.ledger.control import Mirror
from bridge.records.control import Decision, halt_key, halted_topic, policy_key
from tasks import observing

logger = observing.log(__name__)

#: Seconds for which what was read holds.
HOLDS: Final = 1.0
#: Seconds for Redis's answer; how many times as long as one that failed has taken nothing is asked.
ANSWER_WITHIN: Final = 1.0
PATIENCE: Final = 10.0


class Control:
    """What was decided for one group.

    Parameters:
        mirror: `None` where there is no Redis for it: nothing is known.
    """

    _of_group: ClassVar[dict[tuple[int, str], "Control"]] = {}

    def __init__(self, mirror: Mirror | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._mirror, self._clock = mirror, clock
        self._version = ""
        self._known: Mapping[str, Decision] = {}
        self._ask_at = float("-inf")

    @classmethod
    def of(cls, app: Celery, group: str) -> "Control":
        """That of a group, in this process."""
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), group)
        if key not in cls._of_group:
            cls._of_group[key] = cls(_mirror(app, group))
        return cls._of_group[key]

    @property
    def mirror(self) -> Mirror | None:
        """Where it is read; `None` where there is no Redis for it."""
        return self._mirror

    def halt(self, topic: str, *, anew: bool = False) -> Decision | None:
        """Why a topic is halted: who said it, and when; `None`: it is not. Never raises.

        Parameters:
            anew: whether Redis is asked, whenever it was asked last.
        """
        if anew:
            self.forget()
        return self._of(halt_key(topic))

    def policy(self, handler: str) -> Mapping[str, Any] | None:
        """What was set of a handler's policy, `None`: nothing. Never raises."""
        found = self._of(policy_key(handler))
        return None if found is None else found.data

    def learn(self, decision: Decision) -> None:
        """Know what stands, which this process has decided or found itself: Redis may be wiped before it is asked."""
        # Without Redis nobody would ever say that it is taken back.
        if self._mirror is not None:
            self._known = {**self._known, decision.key: decision}

    def forget(self) -> None:
        """Ask anew the next time."""
        self._ask_at = float("-inf")

    def _of(self, key: str) -> Decision | None:
        if self._clock() >= self._ask_at:
            self._ask()
        found = self._known.get(key)
        return None if found is None or found.data is None else found

    def _ask(self) -> None:
        begun, self._ask_at = self._clock(), float("inf")
        wait = HOLDS
        try:
            self._read()
        except BridgeError as error:
            wait = max(HOLDS, PATIENCE * (self._clock() - begun))
            logger.debug("what was decided for the group is not known anew: %s", error)
        self._ask_at = self._clock() + wait

    def _read(self) -> None:
        version = "" if self._mirror is None else self._mirror.version()
        # None: nothing was decided, or Redis was wiped and a bridge is about to put it back.
        if self._mirror is None or version in ("", self._version):
            return
        found, before = self._mirror.read(), self._known
        # What is missing is only gone where a bridge has seen that Kafka does not have it either.
        self._version, self._known = found.version, {**({} if found.whole else before), **found.in_force()}
        _tell(before, self._known)


def _tell(before: Mapping[str, Decision], known: Mapping[str, Decision]) -> None:
    """Say which topics were halted since, and which go on."""
    for key in before.keys() | known.keys():
        topic = halted_topic(key)
        halted = [key in some and some[key].data is not None for some in (before, known)]
        if topic is None or halted[0] == halted[1]:
            continue
        if halted[1]:
            logger.info("topic %r is halted by %s: %s", topic, known[key].by, known[key].why)
        else:
            logger.info("topic %r is run again.", topic)


def _mirror(app: Celery, group: str) -> Mirror | None:
    ledger = Ledger.of(settings.load(app, os.environ).of_group(group), timeout=ANSWER_WITHIN) if group else None
    return Mirror(ledger) if ledger else None
