"""What was sent back goes on along its `sequence`: once its handler has succeeded, it is sent to the next.

Of what comes straight from its source a bridge does that. What was dead it holds no more: the handlers after the one
that died ended as that did, and would never run.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from celery import Celery

from bridge import settings
from bridge.records.attempts import Attempts
from bridge.records.message import Batch, Delivery
from bridge.records.origin import Origin
from bridge.records.outgoing import Outgoing
from bridge.records.replayed import replayed
from bridge.topics.names import TopicNames


def onward(app: Celery, batch: Batch, delivery: Delivery) -> Outgoing | None:
    """The record by which a delivery that has succeeded goes on; `None`: it was not sent back, or is at its end.

    Published before the delivery is marked done, as what its handler sends: a crash between the two sends it twice,
    and of two the second finds the first's end.
    """
    if not delivery.attempts.replayed or not batch.group:
        return None
    topic, sequence = _way(app, os.getpid(), batch.group, batch.topic)
    names = (delivery.handler, *getattr(app.tasks.get(delivery.handler), "other_names", ()))
    step = next((name for name in names if name in sequence), delivery.handler)
    return _record(replace(delivery, handler=step), batch.group, sequence, topic)


@lru_cache(maxsize=256)
def _way(app: Celery, process: int, group: str, source: str) -> tuple[str, Sequence[str]]:
    """The replay topic of a source, and its sequence."""
    chosen = settings.load(app, os.environ).of_group(group)
    return TopicNames.of(chosen).replay(source), chosen.topic(source).sequence


def _record(delivery: Delivery, group: str, sequence: Sequence[str], topic: str) -> Outgoing | None:
    """What is written to the replay topic, without an id: it is no message of the handler's (pure)."""
    if delivery.handler not in sequence[:-1]:
        return None
    message = delivery.message
    origin = Origin(
        message.topic,
        delivery.topic_id,
        message.partition,
        message.offset,
        sequence[sequence.index(delivery.handler) + 1],
        group,
    )
    # It counts as sent back as often as this one was: both were asked for by the same person at the same time.
    attempts = Attempts(replayed=delivery.attempts.replayed - 1)
    headers = replayed(
        origin,
        message.headers,
        timestamp=message.timestamp,
        number=delivery.number,
        attempts=attempts,
        again=delivery.again,
    )
    written = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
    return Outgoing(topic, "", message.key, message.value, written)
