"""The publication of what follows a success, before the delivery is settled: messages that the handler sends, and the
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
from bridge.formats.retry_record import replay_headers
from bridge.formats.user_database import UserDatabase
from bridge.kafka.publisher import Publisher
from bridge.kafka.topic_names import TopicNames
from tasks import logs

logger = logs.harmless_logger(__name__)

#: Seconds between two times that what a batch sends is published while it runs: should a neighbour kill the process,
#: what was to be sent since is lost, and its handlers run again. Each time costs one wait for Kafka.
PUBLISH_EVERY: Final = 0.1
#: Seconds after which what lies in a database is left behind: longer than any pause before Kafka is tried again.
LEFT_AFTER: Final = 600.0
#: Seconds between two looks for it, and how many deliveries one takes up.
LOOK_EVERY: Final = 60.0
AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class UnsentMessages:
    """A delivery whose handler has succeeded, and what that sends."""

    delivery: Delivery
    outgoing: tuple[OutgoingMessage, ...]

    @classmethod
    def of(cls, delivery: Delivery, onward: OutgoingMessage | None = None) -> "UnsentMessages | None":
        """What is to be published for it; `None`: nothing.

        Parameters:
            onward: by what it goes on to the next handler of its sequence.
        """
        outbox = delivery.message.outbox
        found = delivery.outgoing if outbox is None else (*delivery.outgoing, *outbox.left())
        if onward is not None and onward not in found:
            found = (*found, onward)
        return cls(delivery, tuple(found)) if found else None

    @property
    def again(self) -> Delivery:
        """The delivery as it comes again when Kafka has not taken it: what lies in a database is found there."""
        outbox = self.delivery.message.outbox
        at_home = outbox is not None and outbox.home is not None
        kept = self.delivery.outgoing if at_home else self.outgoing
        return replace(self.delivery, outgoing=kept)


class OutgoingPublication:
    """What the handlers of one batch send."""

    _looked: ClassVar[dict[str, float]] = {}

    def __init__(self, app: Celery) -> None:
        self._app = app
        #: Of these the handlers have succeeded, and what they send is not published yet.
        self._unsent: list[UnsentMessages] = []
        self._published_at = time.monotonic()
        self._refused = False

    @property
    def is_due(self) -> bool:
        """Whether to publish before the next handler runs. Where Kafka has just not answered: not before the end."""
        waited = time.monotonic() - self._published_at
        return bool(self._unsent) and not self._refused and waited >= PUBLISH_EVERY

    def take(self, delivery: Delivery, onward: OutgoingMessage | None = None) -> UnsentMessages | None:
        """What is to be published for a delivery before it is done, kept for `publish`; `None`: nothing.

        Parameters:
            onward: by what it goes on to the next handler of its sequence.
        """
        unsent = UnsentMessages.of(delivery, onward)
        if unsent is not None:
            self._unsent.append(unsent)
        return unsent

    def publish(self) -> list[tuple[UnsentMessages, PublishFailed | None]]:
        """Publish it all, and wait until every in-sync replica has it: for each delivery why not, or `None`.

        What of it lies in the user's database is forgotten there. A crash before that publishes it again.
        """
        if not self._unsent:
            return []
        unsent, self._unsent = self._unsent, []
        letters = [(str(each.delivery), outgoing) for each in unsent for outgoing in each.outgoing]
        answers = iter(Publisher.of(self._app).send(letters))
        found = [_worst_failure([next(answers) for _ in each.outgoing]) for each in unsent]
        for each, failed in zip(unsent, found, strict=True):
            outbox = each.delivery.message.outbox
            if failed is None and outbox is not None and outbox.home is not None:
                self._taken_out(outbox, outbox.home)
        self._refused = any(failed is not None and not isinstance(failed, NeverPublished) for failed in found)
        self._published_at = time.monotonic()
        return list(zip(unsent, found, strict=True))

    def _taken_out(self, outbox: Outbox, home: UserDatabase) -> None:
        """Kafka has it: what the user's database does now decides nothing. What stays there is sent once more later."""
        try:
            outbox.published()
            self._look_for_left(home, outbox.whose)
        except Exception as error:
            logger.warning("the outbox in the handlers' database does not answer; it is tried again later: %s", error)

    def _look_for_left(self, home: UserDatabase, whose: str) -> None:
        """Publish what lies in a database for long: its delivery was lost, with a Redis that was wiped."""
        now = time.monotonic()
        if now - self._looked.get(home.name, -LOOK_EVERY) < LOOK_EVERY:
            return
        self._looked[home.name] = now
        for mark, bodies in home.old(whose, time.time() - LEFT_AFTER, AT_ONCE).items():
            left = [OutgoingMessage.from_data(json.loads(body)) for body in bodies]
            failed = _worst_failure(Publisher.of(self._app).send([(each.id, each) for each in left]))
            if failed is not None:
                logger.error("%d messages that were left in an outbox could not be published: %s", len(left), failed)
                home.put_behind(mark, time.time())
                continue
            home.take_out(mark)
            logger.warning("%s: its worker was lost before it was published; now it is.", ", ".join(e.id for e in left))


def _worst_failure(answers: Sequence[PublishFailed | None]) -> PublishFailed | None:
    """Why not all was published: what no time mends, first."""
    failed = [answer for answer in answers if answer is not None]
    return next((each for each in failed if isinstance(each, NeverPublished)), failed[0] if failed else None)


def make_sequence_step(app: Celery, batch: Batch, delivery: Delivery) -> OutgoingMessage | None:
    """The record by which a delivery that has succeeded goes on; `None`: it was not sent back, or is at its end.

    Published before the delivery is marked done, as what its handler sends: a crash between the two sends it twice,
    and of two the second finds the first's end.
    """
    if not delivery.attempts.replayed or not batch.group:
        return None
    topic, sequence = _find_sequence(app, os.getpid(), batch.group, batch.topic)
    names = (delivery.handler, *getattr(app.tasks.get(delivery.handler), "other_names", ()))
    step = next((name for name in names if name in sequence), delivery.handler)
    return _step_record(replace(delivery, handler=step), batch.group, sequence, topic)


@lru_cache(maxsize=256)
def _find_sequence(app: Celery, process: int, group: str, source: str) -> tuple[str, Sequence[str]]:
    """The replay topic of a source, and its sequence."""
    chosen = settings.load(app, os.environ).of_group(group)
    return TopicNames.of(chosen).replay(source), chosen.topic(source).sequence


def _step_record(delivery: Delivery, group: str, sequence: Sequence[str], topic: str) -> OutgoingMessage | None:
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
    headers = replay_headers(
        origin,
        message.headers,
        timestamp=message.timestamp,
        number=delivery.number,
        attempts=attempts,
        again=delivery.again,
    )
    written = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
    return OutgoingMessage(topic, "", message.key, message.value, written)
