"""Which bridges, workers and recorders live, and how each is: what commands read when none of them can be reached.

Nothing here is keyed by the Kafka cluster: what Redis knows can be told while Kafka is away.
"""

import json
import logging
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

from bridge.errors import LedgerUnavailable, UnreadableJson
from bridge.formats.member_state import MemberKind, read_member_state
from bridge.formats.untrusted_json import log_skipped_once
from bridge.ledger.account_progress import Accounts
from bridge.ledger.fate_pages import ledger_key
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_scripts import ANNOUNCE
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

logger = logging.getLogger(__name__)

#: Seconds between two announcements, and for which one holds.
ANNOUNCE_EVERY: Final = 2.0
ANNOUNCED_FOR: Final = 10.0
#: Seconds for which a member that fell silent is known to be lost.
LOST_FOR: Final = 3_600
#: Seconds for which it is known when something was seen last.
_REMEMBERED_FOR: Final = 30 * 86_400


def make_member_name() -> str:
    """Return a name for a member: host and process for people, and an id, since containers share both."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class GroupMembers:
    """The living bridges or recorders of the ledger's group, or the living workers on its Redis (of whatever group: a
    queue is the broker's, not a group's). Each method raises LedgerUnavailable when Redis is silent.

    Attributes:
        mute: why Redis takes no announcements, as of the last look; members that are not there may live then.
        unconfirmed: their names, as far as Redis still lists them; empty while it takes announcements.
    """

    def __init__(self, ledger: Ledger, kind: MemberKind) -> None:
        self.mute, self.unconfirmed = "", tuple[str, ...]()
        self._ledger, self._kind = ledger, kind
        self._name = ("members", kind) if kind == "workers" else ("members", kind, ledger.group)

    def announce(
        self, member: str, state: Mapping[str, Any], seen: Iterable[str] = (), seconds: float = ANNOUNCED_FOR
    ) -> None:
        """Say that a member lives and how it is (JSON values), for `seconds` or until it says so again.

        Parameters:
            seen: names of what is there with it, a queue's consumer for instance: for `last_seen`.
        """
        keys = (self._key("of", member), self._key("all"), self._key("seen"))
        args = (member, json.dumps(state), max(1, int(seconds * 1000)), _REMEMBERED_FOR, *seen)
        self._ledger.run("announce this process", ANNOUNCE, keys, args)

    def leave(self, member: str) -> None:
        """Take back what `member` announced."""
        with self._ledger.asking("take this process off the list") as pipe:
            pipe.delete(self._key("of", member))
            pipe.srem(self._key("all"), member)
            pipe.execute()

    def living(self) -> dict[str, Mapping[str, Any]]:
        """Return what each living member last announced; those that fell silent are taken off the list.

        What is no announcement is left out: Redis may hold what others wrote.
        """
        with self._ledger.asking("list bridges and workers") as pipe:
            pipe.smembers(self._key("all"))
            (everyone,) = pipe.execute()
            names = sorted(name for name in map(decode_name, everyone) if name)
            for name in names:
                pipe.get(self._key("of", name))
            states = dict(zip(names, pipe.execute(raise_on_error=False), strict=True))
            gone = [name for name, state in states.items() if state is None]
            self.mute, self.unconfirmed = "", ()
            if gone:
                # They took nothing back: they were killed or frozen, or their host is gone.
                # A Redis that refuses writes, as without a disk or as a replica, still says who lives.
                pipe.time()
                ((now, _),) = pipe.execute()
                pipe.srem(self._key("all"), *gone)
                pipe.zadd(self._key("lost"), dict.fromkeys(gone, now), nx=True)
                pipe.zremrangebyscore(self._key("lost"), "-inf", now - LOST_FOR)
                pipe.expire(self._key("lost"), LOST_FOR)
                refused = [each for each in pipe.execute(raise_on_error=False) if isinstance(each, Exception)]
                if refused:
                    self.mute, self.unconfirmed = str(refused[0]), tuple(gone)
        found = {
            name: read_announcement(state, self._kind, name) for name, state in states.items() if state is not None
        }
        return {name: state for name, state in found.items() if state is not None}

    def lost(self) -> dict[str, float]:
        """Return who fell silent in the last hour without a shutdown, and seconds since that was seen."""
        with self._ledger.asking("read who was lost") as pipe:
            pipe.time()
            pipe.zrange(self._key("lost"), 0, -1, withscores=True)
            (now, _), found = pipe.execute()
        read = ((decode_name(name), now - at) for name, at in found)
        return {name: max(0.0, ago) for name, ago in read if name and ago <= LOST_FOR}

    def last_seen(self) -> dict[str, float]:
        """Return when each name was last announced (Unix time by Redis's clock), for a month.

        What says no time is left out, as in `living`.
        """
        with self._ledger.asking("read who was here") as pipe:
            pipe.hgetall(self._key("seen"))
            (found,) = pipe.execute()
        read = ((decode_name(name), _read_time(at)) for name, at in found.items())
        return {name: at for name, at in read if name and at is not None}

    def end(self, name: str) -> None:
        """Note that `name` is not to be there any more: nobody misses it, until it is announced again."""
        with self._ledger.asking("note who is not to be here any more") as pipe:
            pipe.time()
            ((now, _),) = pipe.execute()
            pipe.hset(self._key("ended"), name, now)
            pipe.execute()

    def is_missed(self, name: str) -> bool:
        """Whether nobody has said, since `name` was announced last, that it is not to be there any more."""
        with self._ledger.asking("read who is not to be here any more") as pipe:
            pipe.hget(self._key("ended"), name)
            pipe.hget(self._key("seen"), name)
            ended, seen = pipe.execute()
        said_at, seen_at = (None if at is None else _read_time(at) for at in (ended, seen))
        return said_at is None or (seen_at is not None and seen_at > said_at)

    def _key(self, *more: str) -> str:
        return ledger_key(*self._name, *more)


def find_living_sources(ledger: Ledger) -> frozenset[str]:
    """Return the source topics whose handlers some living bridge or worker of the ledger's group has.

    Raises:
        LedgerUnavailable: Redis did not answer, or refuses announcements: those that it does not list may live.
    """
    kinds = GroupMembers(ledger, "bridges"), GroupMembers(ledger, "workers")
    bridges, workers = (kind.living() for kind in kinds)
    if why := kinds[0].mute or kinds[1].mute:
        raise LedgerUnavailable(f"Redis takes no announcements of bridges and workers ({why}).")
    routed = {topic for state in bridges.values() for topic in state.get("routes", {})}
    # A worker says which handlers it has; what they handle the ledger knows.
    known = {name for state in workers.values() if state.get("group") == ledger.group for name in state["handlers"]}
    handled = {each.topic for each in Accounts(ledger).everyone() if each.handler in known} if known else set()
    return frozenset(routed | handled)


def decode_name(name: bytes) -> str | None:
    """A name that Redis has; `None`: it is no text, so none of ours."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _read_time(said: bytes) -> float | None:
    try:
        at = float(said)
    except ValueError:
        return None
    return at if isfinite(at) else None


def read_announcement(answer: Any, kind: MemberKind, member: str = "") -> Mapping[str, Any] | None:
    """Return the announcement in an answer of Redis's to GET; `None` if it is none: that is logged once.

    A worker's names the queues that it consumes. A field of a wrong type is left out.
    """
    announcement = f"the announcement of {member!r} in Redis, one of the group's {kind},"
    if is_wrong_type(answer):
        log_skipped_once(logger, announcement, "its key is of another type")
        return None
    try:
        state = read_member_state(raise_error_answer(answer), kind)
    except UnreadableJson as error:
        log_skipped_once(logger, announcement, str(error))
        return None
    if state.wrong:
        log_skipped_once(
            logger, f"{', '.join(state.wrong)} in {announcement}", "of another type than it is announced with"
        )
    return state.fields
