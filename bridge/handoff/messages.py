"""The messages that the Celery broker holds, looked through for deliveries; nothing of them is changed."""

from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kombu.utils.json import loads

from bridge.handlers import queue_of
from bridge.handoff.broker import Broker
from bridge.handoff.carriers import Carrier, Owner, Waiting, Which, carried, carrier, offsets_in, own_in, waiting_of
from bridge.records.header import HEADER
from lossless.transport.channel import Channel
from lossless.transport.looking import first_waiting, sightings

#: Messages of a queue that wait, and are looked at for what they say of their failures: the first that are due.
LOOKED_AT: Final = 200


class Messages:
    """What lies in queues, with workers, and waits there for its time. Each method raises HandoffFailed when the broker
    does not answer.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def failing(self, queues: Collection[str]) -> list[Waiting]:
        """What waits in those queues after a failure, as far as the first messages of each that are due say it."""
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return []
            found: list[Waiting] = []
            for queue in sorted(queues):
                entries = first_waiting(channel, queue, LOOKED_AT)
                headers = [(each, seen.due) for seen in entries for each in headers_in(seen.raw)]
                found += waiting_of(headers, channel.waiting_count(queue) > len(entries))
            return found

    def deliveries(self, queues: Collection[str]) -> dict[str, int]:
        """How many deliveries the messages of those queues carry; for queues that are short, of which all is read."""
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                return {}
            found: dict[str, int] = {}
            for queue in queues:
                # Each message is seen twice, and counts once.
                counts: dict[int, int] = {}
                for raw, *_ in sightings(producer.channel, queue):
                    owned = (offsets_in(headers) for headers in headers_in(raw))
                    counts[hash(raw)] = sum(len(offsets) for owners in owned for _, offsets in owners)
                found[queue] = sum(counts.values())
            return found

    def search(self, queue: str, suspects: dict[Owner, set[int]]) -> Iterator[None]:
        """Look for deliveries wherever in the broker messages for a queue are: waiting, taken, to be buried.

        One step a message. What is found is taken from `suspects`; what is left there at the end is nowhere. Where
        the transport cannot list its messages nothing is left: it is not known.
        """
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                suspects.clear()
                return
            for name in sorted({queue, self._burials()}):
                for raw, *_ in sightings(producer.channel, name):
                    for owner, offsets in _owned(raw):
                        suspects.get(owner, set()).difference_update(offsets)
                    if not any(suspects.values()):
                        return
                    yield

    def carriers(self, queues: Collection[str], topic: str, wanted: Collection[Which]) -> dict[Which, Carrier] | None:
        """The messages that carry these deliveries of a topic, as far as they are in the broker.

        Returns:
            `None` where the transport cannot list its messages.
        """
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                return None
            found: dict[Which, Carrier] = {}
            for queue in sorted({*queues, self._burials()}):
                for raw, where, due in sightings(producer.channel, queue):
                    for headers in headers_in(raw):
                        for which, more in carried(headers, topic, wanted):
                            found.setdefault(which, carrier(headers, more, queue, where, due))
                    if len(found) == len(wanted):
                        return found
            return found

    def _burials(self) -> str:
        """The queue that messages are sent to that are to be buried."""
        app = self._broker.app
        return queue_of(app, app.tasks.get(app.conf.get("burial_task")))


def _owned(raw: bytes) -> Iterator[tuple[Owner, Sequence[int]]]:
    """What a message carries: deliveries, and the records of retry topics by which they came."""
    for headers in headers_in(raw):
        yield from offsets_in(headers)
        yield from own_in(headers)


def headers_in(raw: bytes) -> list[Mapping[str, Any]]:
    """The headers of a message, and those of the one that it is to bury, if it is a burial."""
    try:
        message = loads(raw)
        found = [message["headers"]]
        if HEADER not in message["headers"]:
            found += [argument["headers"] for argument in loads(b64decode(message["body"]))[0]]
    except Exception:  # anybody may put anything into a queue: what cannot be read carries no record of ours
        found = []
    return [headers for headers in found if isinstance(headers, Mapping)]
