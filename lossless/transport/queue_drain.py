"""The return to kombu's own transport: held, set-aside and waiting messages go back into kombu's queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from lossless.transport.message_gates import SetAsideLists, read_list_key
from lossless.transport.storage_layout import RESTORED, TransportKeys, mark_redelivered
from lossless.transport.transport_scripts import RELEASE_EARLY, SWEEP_OWNER

#: Messages per call of a script: keeps one call to some milliseconds.
CHUNK = 500


class OwnersLive(Exception):
    """Workers still run on this transport, and hold messages."""


class QueueDrain:
    """The drain of the transport's own keys into the queues.

    Parameters:
        client: a redis-py client that prefixes nothing and decodes nothing.
        keys: the names of the keys.
    """

    def __init__(self, client: Any, keys: TransportKeys) -> None:
        self.client = client
        self.keys = keys

    def beats(self) -> dict[str, bytes]:
        """Return each owner's last heartbeat; owners of which only a hash is left have none."""
        beats = {owner.decode(): beat for owner, beat in self.client.hgetall(self.keys.owners).items()}
        start = self.keys.taken("")
        for key in self._keys_from(start):
            beats.setdefault(key.removeprefix(start), b"")
        return beats

    def held(self, beats: dict[str, bytes]) -> Counter[str]:
        """Put back the owners' messages, next to run, marked as redelivered; return how many, by list.

        Parameters:
            beats: each owner's beat, as it was when the owner was seen to have stopped.

        Raises `OwnersLive` for an owner with a new heartbeat.
        """
        moved: Counter[str] = Counter()
        for owner, beat in beats.items():
            entries = self.client.hgetall(self.keys.taken(owner))
            newest_first = sorted((name for name in entries if name.isdigit()), key=int, reverse=True)
            batches = _group_by_list((entries[name], name) for name in newest_first)
            for key, names in batches or [("", [])]:  # one that holds nothing ends too
                back = [
                    part
                    for name in names
                    for part in (name, key, mark_redelivered(_read_message(entries[name]), RESTORED))
                ]
                count = SWEEP_OWNER.run(self.client, [self.keys.taken(owner), self.keys.owners], [owner, beat, *back])
                if count < 0:
                    raise OwnersLive(f"{owner} lives")
                if count:
                    moved[key] += count
        return moved

    def waiting(self) -> Counter[str]:
        """Put waiting messages into their lists, the first due first; return how many, by list."""
        moved: Counter[str] = Counter()
        start = self.keys.waiting("")
        for waiting in self._keys_from(start):
            for key, entries in _group_by_list((entry, entry) for entry in self.client.zrange(waiting, 0, -1)):
                args = [part for entry in entries for part in (entry, _read_message(entry))]
                moved[key] += int(RELEASE_EARLY.run(self.client, [waiting, key], args))
            if not self.client.exists(waiting):
                self.client.srem(self.keys.waiting_queues, waiting.removeprefix(start))
        return moved

    def aside(self) -> Counter[str]:
        """Put messages set aside into their lists, in order, and open the gates; return how many, by list."""
        moved: Counter[str] = Counter()
        for member in SetAsideLists(self.client, self.keys).members():
            while count := self._move(self.keys.aside_of(member), read_list_key(member)):
                moved[read_list_key(member)] += count
            self.client.srem(self.keys.aside, member)
        self.client.delete(self.keys.gates, self.keys.gates_why)
        return moved

    def _move(self, name: str, key: str) -> int:
        """Move part of a list to the front of another: its first message is moved last, and so is next to run."""
        with self.client.pipeline(transaction=False) as pipe:
            for _ in range(CHUNK):
                pipe.lmove(name, key, "LEFT", "RIGHT")
            return sum(moved is not None for moved in pipe.execute())

    def idle(self) -> None:
        """Delete the keys of idle workers: they hold no message, and no notifier runs any more."""
        queues = self.client.smembers(self.keys.idle_queues)
        names = [queue.partition(b"\0")[0] for queue in queues]
        self.client.delete(self.keys.idle_queues, self.keys.notifier, *names)

    def left(self) -> list[str]:
        """Return a sentence for each key of this transport that still has entries."""
        found = [
            f"{count} entries of {key} are still there: they are no messages, or their list refuses them"
            for key in [*self._keys_from(self.keys.taken("")), *self._keys_from(self.keys.waiting(""))]
            if (count := self._size(key))
        ]
        if count := self.client.llen(self.keys.undecodable):
            found.append(f"{count} entries of {self.keys.undecodable} are no messages: kombu's workers end at such")
        return found

    def _size(self, key: str) -> int:
        return int(self.client.zcard(key) if self.client.type(key) == b"zset" else self.client.hlen(key))

    def _keys_from(self, start: str) -> list[str]:
        pattern = "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in start) + "*"
        return sorted({key.decode() for key in self.client.scan_iter(pattern, count=1000)})


def _group_by_list(entries: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, list[bytes]]]:
    """Group names by the list that their messages came from, in chunks; entries that are no messages are left out."""
    names: dict[str, list[bytes]] = {}
    for stored, name in entries:
        key, cut, _ = stored.partition(b"\0")
        if cut:
            names.setdefault(key.decode(), []).append(name)
    return [(key, some[at : at + CHUNK]) for key, some in names.items() for at in range(0, len(some), CHUNK)]


def _read_message(stored: bytes) -> bytes:
    return stored.partition(b"\0")[2]
