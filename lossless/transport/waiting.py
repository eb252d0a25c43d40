"""What waits in Redis for its time, at one channel: what is sent with a countdown, and what a worker has put off."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

import redis
from kombu.log import get_logger
from kombu.utils.json import dumps

from lossless.transport.holding import Taken
from lossless.transport.joining import arguments
from lossless.transport.outages import UNAVAILABLE
from lossless.transport.scripts import HURRY, WAIT
from lossless.transport.stored import Keys, decoded, stored

logger = get_logger("lossless.transport")

#: How many messages that were put off a channel brings back when it closes; older ones come when they are due.
PUT_OFF_KNOWN = 10_000


class Sending(Protocol):
    """What waiting messages need of the channel."""

    keys: Keys

    def conn_or_acquire(self) -> AbstractContextManager[Any]:
        """A client for one command."""

    def bare_client(self) -> redis.Redis:
        """A client that prefixes nothing."""


class Tried(str):
    """The delivery tag of a message of which it is not known whether it was put among the waiting ones."""

    __slots__ = ()


class Waiting:
    """The waiting messages that one channel puts, reads and forgets."""

    def __init__(self, channel: Sending) -> None:
        self.channel = channel
        #: What was put off and may still wait, as it is stored, with its queue.
        self._put_off: dict[bytes, str] = {}

    def put(self, queue: str, key: str, message: dict[str, Any], due: float, batch: Any = None) -> Any:
        """Let a message wait, or join one that waits (lossless/transport/joining.py).

        Parameters:
            queue: its queue.
            key: the list that it goes to when it is due.
            message: in kombu's wire form.
            due: seconds since the epoch.
            batch: kombu's batch of commands to add it to, None: it is sent now.

        Raises redis-py's errors.
        """
        properties, keys = message["properties"], self.channel.keys
        again = isinstance(properties["delivery_tag"], Tried)
        # If only the answer is lost, it waits already: what kombu puts on a next try is the same entry then.
        properties["delivery_tag"] = Tried(properties["delivery_tag"])
        names = [keys.waiting(queue), keys.waiting_queues]
        args = [repr(due), stored(key, dumps(message).encode()), queue, *arguments(message, again)]
        if batch is not None:
            return batch.add("eval", WAIT.text, len(names), *names, *args)
        with self.channel.conn_or_acquire() as client:
            client.eval(WAIT.text, len(names), *names, *args)
        properties["delivery_tag"] = str(properties["delivery_tag"])
        return None

    def messages(self, queue: str, most: int) -> list[dict[str, Any]]:
        """Return the messages of a queue that wait, in kombu's wire form, the first due in front."""
        found = []
        client: Any = self.channel.bare_client()
        for entry in client.zrange(self.channel.keys.waiting(queue), 0, most - 1):
            with suppress(ValueError):
                message = decoded(entry.partition(b"\0")[2])
                if isinstance(message, dict) and isinstance(message.get("headers"), dict) and "properties" in message:
                    found.append(message)
        return found

    def count(self, queue: str) -> int:
        """Return how many messages of a queue wait."""
        client: Any = self.channel.bare_client()
        return int(client.zcard(self.channel.keys.waiting(queue)))

    def drop(self, queue: str) -> int:
        """Forget the messages of a queue that wait; return how many there were."""
        keys = self.channel.keys
        with self.channel.bare_client().pipeline() as pipe:
            pipe.zcard(keys.waiting(queue))
            pipe.delete(keys.waiting(queue))
            pipe.srem(keys.waiting_queues, queue)
            return int(pipe.execute()[0])

    # -- what was put off

    def note_put_off(self, taken: Taken) -> None:
        """Note that a taken message waits, as it is, until this channel closes at the longest."""
        self._put_off[stored(taken.key, taken.raw)] = taken.queue
        while len(self._put_off) > PUT_OFF_KNOWN:
            del self._put_off[next(iter(self._put_off))]

    def bring_back(self, settle: Callable[[], None]) -> None:
        """Put what was put off back into its queue, once ``settle`` has seen that it waits; else it stays so."""
        if not self._put_off:
            return
        try:
            settle()
            self._hurry()
            self._put_off.clear()
        except UNAVAILABLE as exc:
            logger.warning("What was put off stays so until its time: %r", exc)

    def _hurry(self) -> None:
        with self.channel.bare_client().pipeline(transaction=False) as pipe:
            for payload, queue in self._put_off.items():
                key, _, raw = payload.partition(b"\0")
                pipe.eval(HURRY.text, 2, self.channel.keys.waiting(queue), key, payload, raw)
            pipe.execute()
