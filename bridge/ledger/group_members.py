"""The living bridges, workers and recorders of a group: what each announces in Redis, and what any of them saw first.

The keys do not name the Kafka cluster, so they can be read while Kafka is down.
"""

import json
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

from bridge.errors import LedgerUnavailable, UnreadableJson
from bridge.formats.untrusted_json import is_time, log_skipped_once, parse_json
from bridge.ledger.account_progress import Accounts
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.ledger_scripts import ANNOUNCE_MEMBER
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

MemberKind = Literal["bridges", "workers", "recorders"]

logger = logging.getLogger(__name__)

#: Seconds between two announcements, and that one is valid.
ANNOUNCE_EVERY: Final = 2.0
ANNOUNCED_FOR: Final = 10.0
#: Seconds that a member without a heartbeat is remembered as lost.
LOST_FOR: Final = 3_600
#: Seconds that the last announcement of a name is remembered.
_REMEMBERED_FOR: Final = 30 * 86_400


def make_member_name() -> str:
    """Return a name for a member: host and process for people, and an id, since containers share both."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class GroupMembers:
    """The living members of one kind: bridges or recorders of the ledger's group, or workers of any group on its Redis,
    as a queue belongs to the broker. Each method raises LedgerUnavailable when Redis is unavailable.

    Attributes:
        mute: why Redis refused writes when the members were last read; missing members may live then.
        unconfirmed: the names that Redis still lists without an announcement; empty while it takes announcements.
    """

    def __init__(self, ledger: Ledger, kind: MemberKind) -> None:
        self.mute, self.unconfirmed = "", tuple[str, ...]()
        self._ledger, self._kind = ledger, kind
        self._name = ("members", kind) if kind == "workers" else ("members", kind, ledger.group)

    def announce(
        self, member: str, state: Mapping[str, Any], seen: Iterable[str] = (), seconds: float = ANNOUNCED_FOR
    ) -> None:
        """Announce a member and its state (JSON values), valid for `seconds` or until the next announcement.

        Parameters:
            seen: names of what is there with it, such as a queue's consumer, for `last_seen`.
        """
        keys = (self._key("of", member), self._key("all"), self._key("seen"))
        args = (member, json.dumps(state), max(1, int(seconds * 1000)), _REMEMBERED_FOR, *seen)
        self._ledger.run("announce this process", ANNOUNCE_MEMBER, keys, args)

    def leave(self, member: str) -> None:
        """Withdraw the announcement of `member`."""
        with self._ledger.asking("take this process off the list") as pipe:
            pipe.delete(self._key("of", member))
            pipe.srem(self._key("all"), member)
            pipe.execute()

    def living(self) -> dict[str, Mapping[str, Any]]:
        """Return the last announcement of each living member; members without a heartbeat are taken off the list.

        Values that other programs wrote are left out.
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
                # They withdrew nothing: they were killed or frozen, or their host is gone.
                # A Redis that refuses writes, without a disk or as a replica, still says who lives.
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
        """Return the members lost without a shutdown in the last hour, and the seconds since that was seen."""
        with self._ledger.asking("read who was lost") as pipe:
            pipe.time()
            pipe.zrange(self._key("lost"), 0, -1, withscores=True)
            (now, _), found = pipe.execute()
        read = ((decode_name(name), now - at) for name, at in found)
        return {name: max(0.0, ago) for name, ago in read if name and ago <= LOST_FOR}

    def last_seen(self) -> dict[str, float]:
        """Return when each name was last announced (Unix time by Redis's clock), for a month.

        Values that are no time are left out, as in `living`.
        """
        with self._ledger.asking("read who was here") as pipe:
            pipe.hgetall(self._key("seen"))
            (found,) = pipe.execute()
        read = ((decode_name(name), _read_time(at)) for name, at in found.items())
        return {name: at for name, at in read if name and at is not None}

    def end(self, name: str) -> None:
        """Note that `name` has ended on purpose: nobody misses it until it is announced again."""
        with self._ledger.asking("note who is not to be here any more") as pipe:
            pipe.time()
            ((now, _),) = pipe.execute()
            pipe.hset(self._key("ended"), name, now)
            pipe.execute()

    def is_missed(self, name: str) -> bool:
        """Return whether `name` was not ended on purpose since its last announcement."""
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
        LedgerUnavailable: Redis did not answer, or refuses announcements: members that it does not list may live.
    """
    kinds = GroupMembers(ledger, "bridges"), GroupMembers(ledger, "workers")
    bridges, workers = (kind.living() for kind in kinds)
    if why := kinds[0].mute or kinds[1].mute:
        raise LedgerUnavailable(f"Redis takes no announcements of bridges and workers ({why}).")
    routed = {topic for state in bridges.values() for topic in state.get("routes", {})}
    # Workers announce handlers; the ledger knows their topics.
    known = {name for state in workers.values() if state.get("group") == ledger.group for name in state["handlers"]}
    handled = {each.topic for each in Accounts(ledger).list_accounts() if each.handler in known} if known else set()
    return frozenset(routed | handled)


def decode_name(name: bytes) -> str | None:
    """Return a name from Redis; `None` if it is no text and so none of ours."""
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
    """Return the announcement in Redis's answer to GET; `None`, logged once, if it is none.

    A worker's announcement must name its queues. A field of a wrong type is left out.
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


_Check = Callable[[Any], bool]


class MemberState(NamedTuple):
    """An announcement that was read.

    Attributes:
        fields: what the member announced; a field of a wrong type is left out.
        wrong: the names of those fields.
    """

    fields: Mapping[str, Any]
    wrong: tuple[str, ...] = ()


def read_member_state(raw: Any, kind: MemberKind) -> MemberState:
    """Return what a member announced.

    Raises:
        UnreadableJson: it is no announcement.
    """
    state = parse_json(raw)
    if not isinstance(state, dict):
        raise UnreadableJson("it is no object")
    if kind == "workers" and not _is_list(_is_text)(state.get("queues")):
        raise UnreadableJson("it does not name the queues that the worker consumes")
    wrong = tuple(sorted(name for name, is_right in _FIELDS.items() if name in state and not is_right(state[name])))
    fields = {name: value for name, value in state.items() if name not in wrong}
    return MemberState({**_NEEDED[kind], **fields}, wrong)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_version(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(is_right: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def _is_map(is_right: _Check) -> _Check:
    return lambda value: isinstance(value, dict) and all(map(is_right, value.values()))


def _is_object(**fields: _Check) -> _Check:
    """Return a check for an object with at least these fields."""
    return lambda value: (
        isinstance(value, dict) and all(name in value and is_right(value[name]) for name, is_right in fields.items())
    )


_is_counts: Final = _is_map(_is_map(_is_count))
#: Every known field. An unknown one is kept as it is: a newer version may have written it.
_FIELDS: Final[Mapping[str, _Check]] = {
    "name": _is_text,
    "group": _is_text,
    "cluster": _is_version,
    "versions": _is_map(_is_version),
    "started": is_time,
    "since": is_time,
    "topics": _is_list(_is_text),
    "handlers": _is_list(_is_text),
    "handler_versions": _is_map(_is_version),
    "queues": _is_list(_is_text),
    "processes": lambda value: isinstance(value, int) and value >= 0,
    "holds": _is_counts,
    "due": _is_counts,
    "lag": _is_map(_is_count),
    "routes": _is_map(_is_list(_is_text)),
    "assigned": _is_list(_is_text),
    "paused": _is_map(_is_text),
    "paused_since": _is_map(is_time),
    "obstacles": _is_list(_is_text),
    "obstacles_since": _is_list(is_time),
    "unmade": _is_list(_is_text),
    "unmade_since": _is_list(is_time),
    "open_transactions": _is_list(
        _is_object(topic=_is_text, partition=_is_count, offset=_is_count, count=_is_count, since=is_time)
    ),
    "waiting": _is_list(
        _is_object(topic=_is_text, partition=_is_count, handler=_is_text, offset=_is_count, seconds=_is_count)
    ),
    "hot_keys": _is_list(
        _is_object(
            topic=_is_text, partition=_is_count, handler=_is_text, offset=_is_count, count=_is_count, seconds=_is_count
        )
    ),
    "dead_holds": _is_list(
        _is_object(
            topic=_is_text,
            partition=_is_count,
            handler=_is_text,
            offset=_is_count,
            dead=_is_count,
            behind=_is_count,
            since=is_time,
        )
    ),
    "batches": _is_map(_is_object(size=_is_count, why=_is_text)),
    "behind": _is_list(_is_object(topic=_is_text, partition=_is_count, count=_is_count, since=is_time)),
    "unaccounted": _is_list(
        _is_object(topic=_is_text, partition=_is_count, handler=_is_text, count=_is_count, since=is_time)
    ),
    "oldest": _is_list(_is_object(topic=_is_text, handler=_is_text, seconds=_is_count)),
    "running": _is_list(_is_object(handler=_is_text, record=_is_text, pid=_is_count, seconds=_is_count)),
    "backlog_growth": _is_map(_is_object(deliveries=_is_count, seconds=_is_count, rate=_is_number, since=is_time)),
    "costs": _is_map(_is_count),
    "host": _is_text,
    "clock_skew": lambda value: value is None or _is_number(value),
    "clock_skew_since": lambda value: value is None or is_time(value),
    "backlog": _is_map(_is_map(_is_object(deliveries=_is_count))),
}
#: The fields that readers require, with their defaults.
_NEEDED: Final[Mapping[MemberKind, Mapping[str, Any]]] = {
    "bridges": {"versions": {}, "assigned": [], "paused": {}, "obstacles": []},
    "workers": {"versions": {}, "handlers": [], "processes": 1},
    "recorders": {},
}


#: Seconds that a note is kept after its last update.
KEPT_FOR: Final = 7 * 86_400


def note_first_observation(ledger: Ledger, what: str, seen: Mapping[str, float]) -> dict[str, float]:
    """Return when any bridge first saw each of these (Unix time).

    Parameters:
        what: the kind of observation.
        seen: when this bridge first saw each, by name.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    if not seen:
        return {}
    where = ledger_key(ledger.cluster, ledger.group, f"first seen {what}")
    with ledger.asking("read since when something has been so") as pipe:
        for name, at in seen.items():
            pipe.hsetnx(where, name, repr(at))
        pipe.expire(where, KEPT_FOR)
        pipe.hmget(where, list(seen))
        *_, noted = pipe.execute()
    return {name: min(at, _moment(raw, at)) for (name, at), raw in zip(seen.items(), noted, strict=True)}


def _moment(raw: bytes | None, default: float) -> float:
    """Return the time of a note; the default if another program overwrote it."""
    try:
        at = float(raw or b"")
    except ValueError:
        return default
    return at if isfinite(at) and at > 0 else default
