"""The delayed messages: those with a countdown or put off wait in Redis, and those due together are joined.

A message asks to be joined with the header `joins`. Redis appends its list to that of another message with the same
time and name, in one step, and keeps nothing else of it. A message that is sent again because the answer was lost is
joined once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Protocol

import redis
from kombu.log import get_logger
from kombu.utils.json import dumps

from lossless.transport.inflight_messages import TakenMessage
from lossless.transport.redis_outage import UNAVAILABLE, describe_redis_error
from lossless.transport.storage_layout import TransportKeys, decode_message, store_message
from lossless.transport.transport_scripts import DELAY_MESSAGE, RELEASE_EARLY

logger = get_logger("lossless.transport")

#: How many messages that were put off a channel brings back when it closes; older ones come when they are due.
PUT_OFF_KNOWN = 10_000


class SendingChannel(Protocol):
    """The part of the channel that delayed messages use."""

    keys: TransportKeys

    def conn_or_acquire(self) -> AbstractContextManager[Any]:
        """Return a client for one command."""

    def bare_client(self) -> redis.Redis:
        """Return a client that adds no key prefix."""


class TriedTag(str):
    """The delivery tag of a message that may already wait in Redis: the answer to its last try was lost."""

    __slots__ = ()


class DelayedMessages:
    """The delayed messages that one channel puts, reads and deletes."""

    def __init__(self, channel: SendingChannel) -> None:
        self.channel = channel
        #: Messages put off that may still wait, in their stored form, with their queue.
        self._put_off: dict[bytes, str] = {}

    def put(self, queue: str, key: str, message: dict[str, Any], due: float, batch: Any = None) -> Any:
        """Let a message wait until it is due, or join it to one that waits.

        Parameters:
            queue: its queue.
            key: the list that it goes to when it is due.
            message: in kombu's wire form.
            due: seconds since the epoch.
            batch: kombu's batch of commands to add it to, None: it is sent now.

        Raises redis-py's errors.
        """
        properties, keys = message["properties"], self.channel.keys
        again = isinstance(properties["delivery_tag"], TriedTag)
        # If only the answer is lost, it waits already: what kombu puts on a next try is the same entry then.
        properties["delivery_tag"] = TriedTag(properties["delivery_tag"])
        names = [keys.waiting(queue), keys.waiting_queues]
        args = [repr(due), store_message(key, dumps(message).encode()), queue, *make_join_arguments(message, again)]
        if batch is not None:
            return batch.add("eval", DELAY_MESSAGE.text, len(names), *names, *args)
        with self.channel.conn_or_acquire() as client:
            client.eval(DELAY_MESSAGE.text, len(names), *names, *args)
        properties["delivery_tag"] = str(properties["delivery_tag"])
        return None

    def messages(self, queue: str, most: int) -> list[dict[str, Any]]:
        """Return the messages of a queue that wait, in kombu's wire form, the first due in front."""
        found = []
        client: Any = self.channel.bare_client()
        for entry in client.zrange(self.channel.keys.waiting(queue), 0, most - 1):
            with suppress(ValueError):
                message = decode_message(entry.partition(b"\0")[2])
                if isinstance(message, dict) and isinstance(message.get("headers"), dict) and "properties" in message:
                    found.append(message)
        return found

    def count(self, queue: str) -> int:
        """Return how many messages of a queue wait."""
        client: Any = self.channel.bare_client()
        return int(client.zcard(self.channel.keys.waiting(queue)))

    def drop(self, queue: str) -> int:
        """Delete the waiting messages of a queue; return how many there were."""
        keys = self.channel.keys
        with self.channel.bare_client().pipeline() as pipe:
            pipe.zcard(keys.waiting(queue))
            pipe.delete(keys.waiting(queue))
            pipe.srem(keys.waiting_queues, queue)
            return int(pipe.execute()[0])

    # -- messages that were put off

    def note_put_off(self, taken: TakenMessage) -> None:
        """Note that a taken message waits unchanged, until this channel closes at the latest."""
        self._put_off[store_message(taken.key, taken.raw)] = taken.queue
        while len(self._put_off) > PUT_OFF_KNOWN:
            del self._put_off[next(iter(self._put_off))]

    def bring_back(self, settle: Callable[[], None]) -> None:
        """Put messages that were put off back into their queues, after ``settle``; if that fails they keep waiting."""
        if not self._put_off:
            return
        try:
            settle()
            self._hurry()
            self._put_off.clear()
        except UNAVAILABLE as exc:
            logger.warning("messages that were put off wait until they are due: %s", describe_redis_error(exc))

    def _hurry(self) -> None:
        with self.channel.bare_client().pipeline(transaction=False) as pipe:
            for payload, queue in self._put_off.items():
                key, _, raw = payload.partition(b"\0")
                pipe.eval(RELEASE_EARLY.text, 2, self.channel.keys.waiting(queue), key, payload, raw)
            pipe.execute()


#: The header of a message that joins others.
JOINS: Final = "joins"
#: The name behind the list, in the same JSON object, that holds the number of its items.
JOINED: Final = "joined"
#: Most bytes of a message that others are joined to.
MOST_JOINED_BYTES: Final = 1_000_000
#: Messages that are due at one moment, of all names, among which one to join is looked for; and where the answer to the
#: last try was lost, so that it may have been joined.
JOIN_LOOKED_AT: Final = (8, 1_000)


def make_joins_header(name: str, items: str, most: int) -> dict[str, Any]:
    """Return the value of the header `joins`.

    Parameters:
        name: those of one name are joined.
        items: the name of the list.
        most: the most items of a message after it has joined, 9,999 at the most.
    """
    return {"name": name, "items": items, "most": min(most, 9_999)}


def format_joined_count(count: int) -> str:
    """Return the JSON text that follows a list of so many items."""
    return f"{count:04d}"


def make_join_arguments(message: dict[str, Any], again: bool) -> list[str | int]:
    """Return the arguments by which the script joins a message to others.

    Parameters:
        again: whether it may wait already, as the answer to the last try was lost.
    """
    asked = message["headers"].get(JOINS)
    if not isinstance(asked, dict) or set(asked) != {"name", "items", "most"} or not isinstance(asked["most"], int):
        return ["", "", 0, 0, 0]
    whose = dumps({"name": asked["name"], "items": asked["items"]}).removesuffix("}")
    return [
        f'"{JOINS}": {whose}, "most": ',
        f"{dumps(asked['items'])}: [",
        asked["most"],
        MOST_JOINED_BYTES,
        JOIN_LOOKED_AT[again],
    ]
