"""The decisions that are in force in a worker's process: which topics are halted, and each handler's effective policy.
Redis is read at most once a second; while it does not answer, the last known decisions hold.
"""

import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import BridgeError
from bridge.formats.group_decision import (
    GroupDecision,
    format_options,
    halt_key,
    halted_topic,
    policy_key,
    read_option_values,
    summarize_policy_changes,
)
from bridge.formats.halt_scope import HaltScope, find_small_halts, halted_scope
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.errors import HandlerError
from tasks.policy.limit_options import Limit, LimitTerms
from tasks.policy.retry_policy import RetryPolicy

logger = logs.harmless_logger(__name__)

#: Seconds for which decisions that were read hold.
HOLDS: Final = 1.0
#: Seconds for Redis's answer, and the pause after a failed read as a multiple of its time.
ANSWER_WITHIN: Final = 1.0
PATIENCE: Final = 10.0

NO_SMALL_HALTS: Final[Mapping[HaltScope, GroupDecision]] = MappingProxyType({})


class DecisionCache:
    """The decisions for one group, as this process knows them.

    Parameters:
        mirror: `None` without a Redis for it: nothing is known.
    """

    _of_group: ClassVar[dict[tuple[int, str], "DecisionCache"]] = {}

    def __init__(self, mirror: DecisionMirror | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._mirror, self._clock = mirror, clock
        self._version = ""
        #: As of the last look at Redis: another object when it has changed.
        self.known: Mapping[str, GroupDecision] = {}
        #: The halted handlers and keys by topic, and the decisions from which they were made.
        self._small: Mapping[str, Mapping[HaltScope, GroupDecision]] = {}
        self._small_of: Mapping[str, GroupDecision] = self.known
        self._ask_at = float("-inf")

    @classmethod
    def get_cache(cls, app: Celery, group: str) -> "DecisionCache":
        """Return this process's cache for a group."""
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), group)
        if key not in cls._of_group:
            cls._of_group[key] = cls(_open_mirror(app, group))
        return cls._of_group[key]

    @property
    def mirror(self) -> DecisionMirror | None:
        """The mirror in Redis; `None` without a Redis for it."""
        return self._mirror

    def halt(self, topic: str, *, anew: bool = False) -> GroupDecision | None:
        """Return the halt of a topic; `None`: it is not halted. Never raises.

        Parameters:
            anew: whether to ask Redis even if the last answer still holds.
        """
        if anew:
            self.forget()
        return self.find_in_force(halt_key(topic))

    def small_halts(self, topic: str, *, anew: bool = False) -> Mapping[HaltScope, GroupDecision]:
        """Return the halted handlers and keys of a topic; empty: there are none. Never raises.

        Parameters:
            anew: as in `halt`.
        """
        if anew:
            self.forget()
        self._refresh()
        return self.get_small_halts(topic)

    def get_small_halts(self, topic: str) -> Mapping[HaltScope, GroupDecision]:
        """Return the halted handlers and keys of a topic as of the last look at the decisions."""
        if self._small_of is not self.known:
            small: dict[str, dict[HaltScope, GroupDecision]] = {}
            for scope, decision in find_small_halts(self.known).items():
                small.setdefault(scope.topic, {})[scope] = decision
            self._small, self._small_of = small, self.known
        return self._small.get(topic, NO_SMALL_HALTS)

    def policy(self, handler: str) -> Mapping[str, Any] | None:
        """Return the run-time changes of a handler's policy; `None`: there are none. Never raises."""
        found = self.find_in_force(policy_key(handler))
        return None if found is None else found.data

    def learn(self, decision: GroupDecision) -> None:
        """Add a decision that this process has made or found itself: Redis may be wiped before it is asked."""
        # Without Redis it could never be taken back.
        if self._mirror is not None:
            self.known = {**self.known, decision.key: decision}

    def forget(self) -> None:
        """Ask Redis at the next call."""
        self._ask_at = float("-inf")

    def _refresh(self) -> None:
        if self._clock() >= self._ask_at:
            self._ask()

    def find_in_force(self, key: str) -> GroupDecision | None:
        """Return the decision with this key; `None`: there is none, or it was taken back. Never raises."""
        if self._clock() >= self._ask_at:
            self._ask()
        found = self.known.get(key)
        return None if found is None or found.data is None else found

    def _ask(self) -> None:
        begun, self._ask_at = self._clock(), float("inf")
        wait = HOLDS
        try:
            self._read()
        except BridgeError as error:
            wait = max(HOLDS, PATIENCE * (self._clock() - begun))
            logger.debug("the decisions for the group could not be read: %s", error)
        self._ask_at = self._clock() + wait

    def _read(self) -> None:
        version = "" if self._mirror is None else self._mirror.version()
        # None: there are no decisions, or Redis was wiped and a bridge is about to restore them.
        if self._mirror is None or version in ("", self._version):
            return
        found, before = self._mirror.read(), self.known
        # A missing decision is only gone if a bridge has seen that Kafka does not have it either.
        self._version, self.known = found.version, {**({} if found.whole else before), **found.in_force()}
        _log_halt_changes(before, self.known)


def _log_halt_changes(before: Mapping[str, GroupDecision], known: Mapping[str, GroupDecision]) -> None:
    """Log which topics were halted since, and which were resumed."""
    for key in before.keys() | known.keys():
        halted = [key in some and some[key].data is not None for some in (before, known)]
        if halted[0] == halted[1]:
            continue
        if (topic := halted_topic(key)) is not None:
            what = f"topic {topic!r}"
        elif (scope := halted_scope(key)) is not None:
            what = scope.words
        else:
            continue
        if halted[1]:
            logger.info("%s is halted by %s: %s", what, known[key].by, known[key].why)
        else:
            logger.info("%s is run again.", what)


def _open_mirror(app: Celery, group: str) -> DecisionMirror | None:
    ledger = (
        Ledger.from_settings(settings.load(app, os.environ).of_group(group), timeout=ANSWER_WITHIN) if group else None
    )
    return DecisionMirror(ledger) if ledger else None


#: The changes that were read and the resulting policy, by process, group and task.
_known_policies: Final[dict[tuple[int, str, str], tuple[Mapping[str, Any] | None, RetryPolicy]]] = {}


def find_effective_policy(task: MessageTask[..., Any], group: str) -> RetryPolicy:
    """Return the policy that is in force for a handler now."""
    if not group:
        return task.policy
    decided = DecisionCache.get_cache(task.app, group).policy(find_main_name(task.app, task))
    key = (os.getpid(), group, task.name)
    known, policy = _known_policies.get(key, (None, task.policy))
    if decided is not known:
        policy = _override_policy(task, decided)
        _known_policies[key] = (decided, policy)
    return policy


def _override_policy(task: MessageTask[..., Any], decided: Mapping[str, Any] | None) -> RetryPolicy:
    if decided is None:
        logger.info("%s: its policy is the code's again.", task.name)
        return task.policy
    try:
        policy = task.changing.policy(read_option_values(decided))
    except HandlerError as error:
        logger.error(
            "%s: what was changed of its policy is not in force, its code's policy is: %s "
            "Set it anew, or take it back: bridge policy unset %s --why …",
            task.name,
            str(error),
            task.name,
        )
        return task.policy
    logger.info(
        "%s: its policy is not its code's: %s, %s.",
        task.name,
        format_options(read_option_values(decided)),
        summarize_policy_changes(decided),
    )
    return policy


#: The changes that were read and the resulting numbers, by process, group and limit.
_known_limits: Final[dict[tuple[int, str, str], tuple[Mapping[str, Any] | None, LimitTerms]]] = {}


def find_effective_limit(task: MessageTask[..., Any], limit: Limit, group: str) -> LimitTerms:
    """Return the numbers of a limit that are in force now."""
    decided = DecisionCache.get_cache(task.app, group).policy(limit.changing.name)
    key = (os.getpid(), group, limit.name)
    known, terms = _known_limits.get(key, (None, limit.terms))
    if decided is not known:
        terms = _override_limit(limit, decided)
        _known_limits[key] = (decided, terms)
    return terms


def _override_limit(limit: Limit, decided: Mapping[str, Any] | None) -> LimitTerms:
    if decided is None:
        logger.info("%r: its numbers are the code's again.", limit)
        return limit.terms
    try:
        terms = limit.changing.policy(read_option_values(decided))
    except HandlerError as error:
        logger.error(
            "%r: what was changed is not in force, its code's numbers are: %s Set it anew, or take it back: "
            "bridge policy unset %s --why …",
            limit,
            str(error),
            limit.changing.name,
        )
        return limit.terms
    changes = format_options(read_option_values(decided)), summarize_policy_changes(decided)
    logger.info("%r: its numbers are not its code's: %s, %s.", limit, *changes)
    return terms


def find_main_name(app: Celery, task: MessageTask[..., Any]) -> str:
    """Return the current name of a handler."""
    for name in (task.name, *task.other_names):
        if getattr(app.tasks.get(name), "source_topics", ()):
            return str(name)
    return str(task.name)
