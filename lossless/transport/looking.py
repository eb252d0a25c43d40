"""Where the messages of a queue lie, for those who look for one. Reads in pieces, and only when asked for more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from kombu.utils.encoding import bytes_to_str

from lossless.transport.gates import Aside

#: Messages of one piece at the most, and bytes that it is to have about.
PIECE = 200
PIECE_BYTES = 1_000_000
#: Messages of a piece of a hash or a sorted set, whose sizes are not known before.
SCANNED = 20


class Sighting(NamedTuple):
    """A message, and where it was seen: in its list, set aside, taken by a worker, or waiting until `due` (Unix)."""

    raw: bytes
    where: Literal["queue", "aside", "taken", "waiting"]
    due: float | None = None


def sightings(channel: Any, queue: str) -> Iterator[Sighting]:
    """Yield every message of a queue, in its lists, set aside, taken, or waiting, twice over.

    Twice, because a message goes from one place to another meanwhile. The queue is one of `channel`'s, of this
    package's transport.
    """
    client: Any = channel.bare_client()
    lists = [channel.list_key(queue, step).encode() for step in channel.priority_steps]
    for _ in range(2):
        for name in lists:
            for entry in _pieces(client, name):
                yield Sighting(entry, "queue")
        for name in channel.aside_lists(queue):
            for entry in _pieces(client, name.encode()):
                yield Sighting(entry, "aside")
        for owner in client.hkeys(channel.keys.owners):
            for _, entry in client.hscan_iter(channel.keys.taken(bytes_to_str(owner)), count=SCANNED):
                key, _, raw = entry.partition(b"\0")
                if key in lists:
                    yield Sighting(raw, "taken")
        for entry, due in _waiting(client, channel.keys.waiting(queue)):
            yield Sighting(entry.partition(b"\0")[2], "waiting", float(due))


def first_waiting(channel: Any, queue: str, most: int) -> list[Sighting]:
    """Return the messages of a queue that wait and are due first, at most so many."""
    found = channel.bare_client().zrange(channel.keys.waiting(queue), 0, most - 1, withscores=True)
    return [Sighting(entry.partition(b"\0")[2], "waiting", float(due)) for entry, due in found]


def some_aside(channel: Any, most: int) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yield each list of what is set aside: its gate, its length, and at most so many of its messages, of both ends."""
    client: Any = channel.bare_client()
    for member in Aside(client, channel.keys).members():
        name = channel.keys.aside_of(member)
        with client.pipeline() as pipe:
            pipe.llen(name)
            pipe.lrange(name, 0, most - 1)
            pipe.lrange(name, -(most // 2), -1)
            length, first, last = pipe.execute()
        if length:
            yield member.partition("\0")[0], length, first if length <= most else first[: most - most // 2] + last


def _waiting(client: Any, name: str) -> Iterator[tuple[bytes, float]]:
    # The last due in front: what is due meanwhile leaves at the other end, and what is joined keeps its place, which a
    # scan would not see if it is made anew behind it.
    start = 0
    while entries := client.zrange(name, -start - SCANNED, -start - 1, withscores=True):
        yield from reversed(entries)
        start += SCANNED


def _pieces(client: Any, name: bytes) -> Iterator[bytes]:
    # From the end where messages are put: what is taken meanwhile is taken from the other, and nothing is passed over.
    start, size = 0, 10
    while entries := client.lrange(name, start, start + size - 1):
        yield from entries
        start += size
        size = max(1, min(PIECE, PIECE_BYTES * len(entries) // max(1, sum(map(len, entries)))))
