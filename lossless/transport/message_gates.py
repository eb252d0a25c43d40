"""Gates: messages that must not run for now wait in Redis, without a worker's time, until their gate opens.

A message's property `gates` names those that it must pass, parted by blanks. While one of them is shut, Redis itself
sets the message aside, in the step in which a worker would take it (``lua/gated_take.lua``): into a list of that gate
and of the list that it lay in. It goes on from there, before all that lies in its queue and in the order in which it
came, as soon as the gate is open; nothing is moved for that, so opening takes no longer for a million than for one,
and no crash falls into it. What is set aside is as safe as what is queued: it is counted, found, purged and drained
with its queue.

Workers of a version that knows no gates run what they find in the queue, and leave what is set aside alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from redis.exceptions import NoPermissionError

from lossless.transport.storage_layout import TransportKeys, decode_text
from lossless.transport.transport_scripts import ADMIT_MESSAGES

#: The property of a message that names its gates.
GATES: Final = "gates"
#: Printable ASCII, without what JSON would write otherwise, and without blanks.
_NAME: Final = re.compile(r"[!#-\[\]-~]+")


def format_gates(names: Iterable[str]) -> str:
    """Return the property `gates` of a message that must pass these.

    Raises `ValueError` for what is no name: printable ASCII, without blanks, quotes and backslashes.
    """
    return " ".join(map(_check_gate_name, names))


def _check_gate_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid gate name: printable ASCII, without blanks, quotes and backslashes")
    return name


#: How many messages of a list Redis looks at to estimate its bytes.
SAMPLES: Final = 10


class AsideSize(NamedTuple):
    """The messages that a gate has set aside, and about how many bytes of Redis they take; 0 if that is not known."""

    messages: int = 0
    bytes: int = 0


class MessageGates:
    """The gates of one broker.

    Parameters:
        client: a redis-py client of the broker's Redis, that prefixes nothing.
        prefix: kombu's ``global_keyprefix``.

    All methods raise redis-py's errors.
    """

    def __init__(self, client: Any, prefix: str = "") -> None:
        self._client = client
        self._keys = TransportKeys(prefix)

    def shut(self, name: str, why: str = "") -> None:
        """Shut a gate: nothing passes, not even messages that were allowed. Raises `ValueError` as `format_gates`."""
        with self._client.pipeline() as pipe:
            pipe.hset(self._keys.gates, _check_gate_name(name), 0)
            pipe.hset(self._keys.gates_why, name, why)
            pipe.execute()

    def open(self, name: str) -> None:
        """Open a gate: everything passes, messages set aside first. An open gate stays open."""
        with self._client.pipeline() as pipe:
            pipe.hdel(self._keys.gates, name)
            pipe.hdel(self._keys.gates_why, name)
            pipe.execute()

    def allow(self, name: str, most: int) -> bool:
        """Allow so many messages to pass a shut gate from now on, whatever was allowed before.

        Returns whether it is shut.
        """
        return bool(ADMIT_MESSAGES.run(self._client, [self._keys.gates], [name, most]))

    def allowed(self, name: str) -> int | None:
        """Return how many messages may still pass a shut gate; None if it is open."""
        found = self._client.hget(self._keys.gates, name)
        return None if found is None else int(found)

    def shut_names(self) -> dict[str, str]:
        """Return the shut gates with their reasons."""
        with self._client.pipeline() as pipe:
            pipe.hkeys(self._keys.gates)
            pipe.hgetall(self._keys.gates_why)
            names, whys = pipe.execute()
        known = {decode_text(name): decode_text(why) for name, why in whys.items()}
        return {name: known.get(name, "") for name in sorted(map(decode_text, names))}

    def aside(self) -> dict[str, int]:
        """Return how many messages each gate has set aside, and not given back yet."""
        found: dict[str, int] = {}
        for member, length in SetAsideLists(self._client, self._keys).lengths().items():
            gate = member.partition("\0")[0]
            found[gate] = found.get(gate, 0) + length
        return found

    def measure_aside(self, names: Collection[str]) -> dict[str, AsideSize]:
        """Return what each of these gates has set aside, and not given back yet."""
        found = dict.fromkeys(names, AsideSize())
        members = [
            each for each in SetAsideLists(self._client, self._keys).members() if each.partition("\0")[0] in found
        ]
        if not members:
            return found
        with self._client.pipeline(transaction=False) as pipe:
            for member in members:
                pipe.llen(self._keys.aside_of(member))
                pipe.memory_usage(self._keys.aside_of(member), samples=SAMPLES)
            answers = pipe.execute(raise_on_error=False)
        for member, length, size in zip(members, answers[::2], answers[1::2], strict=True):
            if isinstance(length, Exception):
                raise length
            # MEMORY USAGE may be refused to this user; a list may be gone by now.
            size = 0 if isinstance(size, Exception) or size is None else int(size)
            gate = member.partition("\0")[0]
            found[gate] = AsideSize(found[gate].messages + int(length), found[gate].bytes + size)
        return found


class SetAsideLists:
    """The lists of messages that gates have set aside: members of the set ``_aside``, each a gate, NUL, a list.

    Parameters:
        client: as for `MessageGates`.
        keys: the names of the keys.
    """

    def __init__(self, client: Any, keys: TransportKeys) -> None:
        self._client = client
        self._keys = keys

    def members(self, lists: Collection[str] | None = None) -> list[str]:
        """Return the members for the lists ``lists`` (None: for all)."""
        try:
            members = sorted(map(decode_text, self._client.smembers(self._keys.aside)))
        except NoPermissionError:
            return []  # an ACL of before gates came: to this user all are open, and nothing is set aside
        return [member for member in members if lists is None or read_list_key(member) in lists]

    def lengths(self, lists: Collection[str] | None = None) -> dict[str, int]:
        """Return the number of messages of each member."""
        if not (members := self.members(lists)):
            return {}
        with self._client.pipeline(transaction=False) as pipe:
            for member in members:
                pipe.llen(self._keys.aside_of(member))
            return dict(zip(members, map(int, pipe.execute()), strict=True))

    def drop(self, lists: Collection[str]) -> int:
        """Delete the messages set aside of these lists; return how many there were."""
        dropped = 0
        for member in self.members(lists):
            name = self._keys.aside_of(member)
            with self._client.pipeline() as pipe:
                pipe.llen(name)
                pipe.delete(name)
                pipe.srem(self._keys.aside, member)
                dropped += int(pipe.execute()[0])
        return dropped


def read_list_key(member: str) -> str:
    """Return the list that the messages of a member lay in."""
    return member.partition("\0")[2]
