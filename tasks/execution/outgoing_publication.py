"""The publication of records after a success, before the delivery is settled: messages that the handler sends, and the
record by which a replayed delivery goes on to the next handler of its `sequence`.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import NeverPublished, PublishFailed
from bridge.formats.delivery import Attempts, Batch, Delivery
from bridge.formats.delivery_identity import Origin
from bridge.formats.outbox import Outbox, OutgoingMessage
from bridge.formats.replay_record import replay_headers
from bridge.formats.text_forms import format_count
from bridge.formats.user_database import UserDatabase
from bridge.kafka.publisher import Publisher
from bridge.kafka.topic_names import TopicNames
from tasks import logs

logger = logs.harmless_logger(__name__)

#: Seconds between publications while a batch runs. If a neighbour kills the process, handlers since the last one run
#: again. Each publication costs one wait for Kafka.
PUBLISH_EVERY: Final = 0.1
#: Seconds after which messages in an outbox count as left behind: longer than any pause between publications.
LEFT_AFTER: Final = 600.0
#: Seconds between searches for them, and the most deliveries of one search.
SEARCH_EVERY: Final = 60.0
AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class UnsentMessages:
    """The unsent messages of a delivery whose handler has succeeded."""

    delivery: Delivery
    outgoing: tuple[OutgoingMessage, ...]

    @classmethod
    def from_delivery(cls, delivery: Delivery, onward: OutgoingMessage | None = None) -> "UnsentMessages | None":
        """Return the unsent messages of a delivery; `None`: there are none.

        Parameters:
            onward: the record by which it goes on to the next handler of its sequence.
        """
        outbox = delivery.message.outbox
        found = delivery.outgoing if outbox is None else (*delivery.outgoing, *outbox.left())
        if onward is not None and onward not in found:
            found = (*found, onward)
        return cls(delivery, tuple(found)) if found else None

    @property
    def again(self) -> Delivery:
        """The delivery for a retry of the publication; messages in a database outbox are found there."""
        outbox = self.delivery.message.outbox
        at_home = outbox is not None and outbox.home is not None
        kept = self.delivery.outgoing if at_home else self.outgoing
        return replace(self.delivery, outgoing=kept)


class OutgoingPublication:
    """The publication of the messages that one batch's handlers send."""

    _searched_at: ClassVar[dict[str, float]] = {}

    def __init__(self, app: Celery) -> None:
        self._app = app
        #: Deliveries whose handlers have succeeded, with messages not published yet.
        self._unsent: list[UnsentMessages] = []
        self._published_at = time.monotonic()
        self._refused = False

    @property
    def waits(self) -> bool:
        """Whether messages wait that are published before the batch ends."""
        return bool(self._unsent) and not self._refused

    @property
    def is_due(self) -> bool:
        """Whether to publish before the next handler runs; after a failure only at the end of the batch."""
        return self.waits and time.monotonic() - self._published_at >= PUBLISH_EVERY

    def take(self, delivery: Delivery, onward: OutgoingMessage | None = None) -> UnsentMessages | None:
        """Keep a delivery's unsent messages for `publish`, and return them; `None`: there are none.

        Parameters:
            onward: the record by which it goes on to the next handler of its sequence.
        """
        unsent = UnsentMessages.from_delivery(delivery, onward)
        if unsent is not None:
            self._unsent.append(unsent)
        return unsent

    def publish(self) -> list[tuple[UnsentMessages, PublishFailed | None]]:
        """Publish all, wait until every in-sync replica has it, and return for each delivery why not, or `None`.

        Published messages are removed from the user's database. A crash before that publishes them again.
        """
        if not self._unsent:
            return []
        unsent, self._unsent = self._unsent, []
        messages = [(str(entry.delivery), outgoing) for entry in unsent for outgoing in entry.outgoing]
        answers = iter(Publisher.get_publisher(self._app).send(messages))
        failures = [_worst_failure([next(answers) for _ in entry.outgoing]) for entry in unsent]
        for entry, failed in zip(unsent, failures, strict=True):
            outbox = entry.delivery.message.outbox
            if failed is None and outbox is not None and outbox.home is not None:
                self._clear_outbox(outbox, outbox.home)
        self._refused = any(failed is not None and not isinstance(failed, NeverPublished) for failed in failures)
        self._published_at = time.monotonic()
        return list(zip(unsent, failures, strict=True))

    def _clear_outbox(self, outbox: Outbox, home: UserDatabase) -> None:
        """Remove published messages from an outbox; if its database fails, they are published once more later."""
        try:
            outbox.published()
            self._publish_left(home, outbox.whose)
        except Exception as error:
            logger.warning("the outbox in the handlers' database does not answer; it is tried again later: %s", error)

    def _publish_left(self, home: UserDatabase, whose: str) -> None:
        """Publish old messages of a database's outboxes, whose deliveries were lost with a wiped Redis."""
        now = time.monotonic()
        if now - self._searched_at.get(home.name, -SEARCH_EVERY) < SEARCH_EVERY:
            return
        self._searched_at[home.name] = now
        for mark, bodies in home.old(whose, time.time() - LEFT_AFTER, AT_ONCE).items():
            left = [OutgoingMessage.from_data(json.loads(body)) for body in bodies]
            failed = _worst_failure(
                Publisher.get_publisher(self._app).send([(message.id, message) for message in left])
            )
            if failed is not None:
                logger.error(
                    "%s, left in an outbox, could not be published: %s", format_count(len(left), "message"), failed
                )
                home.put_behind(mark, time.time())
                continue
            home.take_out(mark)
            logger.warning("%s: its worker was lost before it was published; now it is.", ", ".join(e.id for e in left))


def _worst_failure(answers: Sequence[PublishFailed | None]) -> PublishFailed | None:
    """Return why not all was published: a permanent failure first."""
    failed = [answer for answer in answers if answer is not None]
    return next((failure for failure in failed if isinstance(failure, NeverPublished)), failed[0] if failed else None)


def make_sequence_step(app: Celery, batch: Batch, delivery: Delivery) -> OutgoingMessage | None:
    """Return the record by which a replayed delivery goes on in its sequence; `None`: it is not replayed, or the last.

    It is published before the delivery is marked done: a crash between the two sends it twice, and the second finds the
    first one settled.
    """
    if not delivery.attempts.replayed or not batch.group:
        return None
    topic, sequence = _find_sequence(app, os.getpid(), batch.group, batch.topic)
    names = (delivery.handler, *getattr(app.tasks.get(delivery.handler), "other_names", ()))
    step = next((name for name in names if name in sequence), delivery.handler)
    return _step_record(replace(delivery, handler=step), batch.group, sequence, topic)


@lru_cache(maxsize=256)
def _find_sequence(app: Celery, process: int, group: str, source: str) -> tuple[str, Sequence[str]]:
    """Return the replay topic of a source topic, and its sequence."""
    chosen = settings.load(app, os.environ).of_group(group)
    return TopicNames.from_settings(chosen).replay(source), chosen.topic(source).sequence


def _step_record(delivery: Delivery, group: str, sequence: Sequence[str], topic: str) -> OutgoingMessage | None:
    """Return the record for the replay topic, without an id: it is no message of the handler's (pure)."""
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
    # It is replayed as often as this delivery: one replay covers both.
    attempts = Attempts(replayed=delivery.attempts.replayed - 1)
    headers = replay_headers(
        origin,
        message.headers,
        timestamp=message.timestamp,
        number=delivery.number,
        attempts=attempts,
        again=delivery.again,
        trace=delivery.trace,
    )
    written = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
    return OutgoingMessage(topic, "", message.key, message.value, written)
