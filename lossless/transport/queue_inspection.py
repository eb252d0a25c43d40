"""The inspection of a queue: where its messages are, and how many bytes it takes; read-only."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import redis
from kombu.utils.encoding import bytes_to_str

from lossless.transport.message_gates import SetAsideLists
from lossless.transport.redis_permissions import is_refusal
from lossless.transport.storage_layout import decode_text
from lossless.transport.transport_scripts import WEIGH_QUEUE

#: Messages of one piece at the most, and bytes that it is to have about.
PIECE = 200
PIECE_BYTES = 1_000_000
#: Messages of a piece of a hash or a sorted set, whose sizes are not known before.
SCANNED = 20


class MessageSighting(NamedTuple):
    """A message, and where it was seen: in its list, set aside, taken by a worker, or waiting until `due` (Unix)."""

    raw: bytes
    where: Literal["queue", "aside", "taken", "waiting"]
    due: float | None = None


def find_messages(channel: Any, queue: str) -> Iterator[MessageSighting]:
    """Yield every message of a queue, in its lists, set aside, taken, or waiting, twice over.

    Twice, because a message goes from one place to another meanwhile. The queue is one of `channel`'s, of this
    package's transport.
    """
    client: Any = channel.bare_client()
    lists = [channel.list_key(queue, step).encode() for step in channel.priority_steps]
    for _ in range(2):
        for name in lists:
            for entry in read_pieces(client, name):
                yield MessageSighting(entry, "queue")
        for name in channel.aside_lists(queue):
            for entry in read_pieces(client, name.encode()):
                yield MessageSighting(entry, "aside")
        for owner in client.hkeys(channel.keys.owners):
            for _, entry in client.hscan_iter(channel.keys.taken(bytes_to_str(owner)), count=SCANNED):
                key, _, raw = entry.partition(b"\0")
                if key in lists:
                    yield MessageSighting(raw, "taken")
        for entry, due in read_waiting(client, channel.keys.waiting(queue)):
            yield MessageSighting(entry.partition(b"\0")[2], "waiting", float(due))


def find_first_waiting(channel: Any, queue: str, most: int) -> list[MessageSighting]:
    """Return the waiting messages of a queue that are due first, at most so many."""
    found = channel.bare_client().zrange(channel.keys.waiting(queue), 0, most - 1, withscores=True)
    return [MessageSighting(entry.partition(b"\0")[2], "waiting", float(due)) for entry, due in found]


def sample_set_aside(channel: Any, most: int) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yield each list of messages set aside: its gate, its length, and some of its messages from both ends."""
    client: Any = channel.bare_client()
    for member in SetAsideLists(client, channel.keys).members():
        name = channel.keys.aside_of(member)
        with client.pipeline() as pipe:
            pipe.llen(name)
            pipe.lrange(name, 0, most - 1)
            pipe.lrange(name, -(most // 2), -1)
            length, first, last = pipe.execute()
        if length:
            yield member.partition("\0")[0], length, first if length <= most else first[: most - most // 2] + last


def read_waiting(client: Any, name: str) -> Iterator[tuple[bytes, float]]:
    """Yield the stored messages of a sorted set, and when each is due."""
    # The last due in front: what is due meanwhile leaves at the other end, and what is joined keeps its place, which a
    # scan would not see if it is made anew behind it.
    start = 0
    while entries := client.zrange(name, -start - SCANNED, -start - 1, withscores=True):
        yield from reversed(entries)
        start += SCANNED


def read_pieces(client: Any, name: bytes) -> Iterator[bytes]:
    """Yield the messages of a list."""
    # From the end where messages are put: what is taken meanwhile is taken from the other, and nothing is passed over.
    start, size = 0, 10
    while entries := client.lrange(name, start, start + size - 1):
        yield from entries
        start += size
        size = max(1, min(PIECE, PIECE_BYTES * len(entries) // max(1, sum(map(len, entries)))))


#: Messages that are looked at, spread over the whole queue; all of one that is no longer. Less where they are large.
SAMPLES = 16


class QueueWeight(NamedTuple):
    """The weight of a queue.

    Attributes:
        size: the bytes that its messages take, with those that wait or are set aside, as Redis estimates it from a few.
        samples: of each message that was looked at the task, and how many items it carries.
    """

    size: int
    samples: Sequence[tuple[str, int]]


def weigh_queue(channel: Any, queue: str, lists: Sequence[str], most: int = SAMPLES) -> QueueWeight | None:
    """Weigh a queue of `channel`'s, of this package's transport.

    Parameters:
        lists: names of lists that messages may carry, in whose items they are counted.
        most: how many messages are looked at.

    Returns None where this Redis user may not. Raises redis-py's errors.
    """
    names = [channel.list_key(queue, step) for step in channel.priority_steps]
    keys = [*names, channel.keys.waiting(queue), *channel.aside_lists(queue)]
    # Each in its part of the queue, and somewhere there: what comes in turns is not always met with the same turn. In
    # no order: where messages are so large that only some are read, those are from all over it too.
    parts = random.sample(range(most), most)
    where = " ".join(f"{(part + random.random()) / most:.6f}" for part in parts)
    try:
        size, samples = WEIGH_QUEUE.run(channel.bare_client(), keys, [len(names), where, *lists])
    except redis.ResponseError as exc:
        if is_refusal(exc):
            return None
        raise
    return QueueWeight(int(size), [(decode_text(task), int(count)) for task, count in samples])
