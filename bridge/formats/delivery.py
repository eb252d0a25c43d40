"""The message that a handler gets, its delivery with the attempts so far, and the batch in a Celery message."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from bridge.formats.attempt_history import FAILED, POSTPONED, AttemptNote, History, add_attempt
from bridge.formats.delivery_identity import batch_id, work_of
from bridge.formats.failure import Failure, cut
from bridge.formats.outbox import Outbox, OutgoingMessage, settle_outboxes
from bridge.formats.user_database import SessionTransaction


class Attempts(NamedTuple):
    """The attempts of a delivery so far, counted by how they ended.

    Attributes:
        failed: runs that failed and spent a retry.
        lost: processes, workers or machines that died with it.
        postponed: times that it was put off without fault of its own: `RetryLater`, a halt, a breaker.
        replayed: times that a person sent it back.
    """

    failed: int = 0
    lost: int = 0
    postponed: int = 0
    replayed: int = 0

    def plus(self, failed: int = 0, lost: int = 0, postponed: int = 0, replayed: int = 0) -> "Attempts":
        """Return these attempts with more of each kind."""
        return Attempts(self.failed + failed, self.lost + lost, self.postponed + postponed, self.replayed + replayed)

    def __str__(self) -> str:
        """Return the counts in words, `3 failed, 1 lost`; `none` if all are 0."""
        said = ", ".join(f"{count} {name}" for name, count in zip(self._fields, self, strict=True) if count)
        return said or "none"


#: The attempts of a delivery that never ran.
NO_ATTEMPTS: Final = Attempts()


#: Longest text of a failure that travels with a delivery that runs again.
ERROR_LENGTH = 300

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A Kafka record as the handler gets it.

    Attributes:
        topic, partition, offset: of the source record.
        key, value: byte for byte as produced; `None` as in Kafka.
        headers: the producer's own, in order, names may repeat.
        timestamp: milliseconds since the epoch, or `None` if the record has none.
        attempt: 1 for the first run of the handler, counted over every kind of retry.
        attempts: what became of the runs before: `failed`, `lost`, `postponed`, `replayed`.
        delivery: the identity of the delivery if a handler was given this message, with the request for another run
            if a person made one although it was done.
        origin: the Kafka cluster, the group and the id of the topic's log, which the identity does not contain.
        outbox: the messages that the handler sends (`publish`), if any.
    """

    topic: str
    partition: int
    offset: int
    # The repr leaves out key, value and headers: loggers and error collectors keep the repr of what they meet.
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timestamp: int | None = None
    attempt: int = field(default=1, compare=False)
    attempts: Attempts = field(default=NO_ATTEMPTS, compare=False)
    delivery: str = field(default="", compare=False)
    origin: str = field(default="", compare=False, repr=False)
    outbox: Outbox | None = field(default=None, init=False, compare=False, repr=False)

    def header(self, name: str) -> bytes | None:
        """Return the value of the last header of that name, or `None`."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def settle_with(self, session: Any) -> None:
        """Write "done" in the handler's own database transaction, so that work and mark commit or roll back together.

        A mark of work that was rolled back does not count. After a crash between the commit and the ledger's
        mark, the delivery is redelivered; this then ends the handler before its work is done twice.

        Parameters:
            session: a SQLAlchemy session (or connection) in which the handler does its work, or Django's
                `connection` inside `transaction.atomic()`.

        Raises:
            AlreadySettled: an earlier run committed the work; do not catch it.
        """
        self._own_outbox().settle_with(session)

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] = (),
    ) -> None:
        """Send a message once the handler has succeeded, before its delivery is settled; if it fails, send nothing.

        A handler that runs again sends again: the header `message_id` is the same then, for consumers to drop a
        repeat. After `settle_with` it is written into the handler's own transaction too, and is published from there
        if this process ends before it could.

        Parameters:
            value: bytes as they are; text in UTF-8; `None`, a tombstone; a pydantic model; all else as JSON.
            headers: the message's own; `message_id` is added behind them.

        Raises:
            TypeError, ValueError: Kafka cannot carry it.
        """
        self._own_outbox().add(topic, value, key, headers)

    def _own_outbox(self) -> Outbox:
        if self.outbox is None:
            # A message that a test made by hand belongs to no handler.
            object.__setattr__(self, "outbox", Outbox(self.delivery or self.coordinates, self.origin))
        assert self.outbox is not None
        return self.outbox

    @property
    def coordinates(self) -> str:
        """Return the record's coordinates in Kafka, `orders-3-1234`."""
        return f"{self.topic}-{self.partition}-{self.offset}"


def settle_together(messages: Iterable[Message], session: Any) -> SessionTransaction:
    """Write "done" for several messages in the handler's own transaction, and return that; see `Message.settle_with`.

    Raises:
        AlreadySettled: an earlier run committed the work of some: their outboxes say so.
    """
    return settle_outboxes([message._own_outbox() for message in messages], session)


class Via(NamedTuple):
    """The record of a retry or replay topic by which a delivery was redelivered."""

    topic: str
    partition: int
    offset: int
    topic_id: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True)
class Dead:
    """The reason why a delivery is dead; Kafka may not have acknowledged its dead letter yet.

    Attributes:
        version: of the handler's code that failed; empty if unknown.
    """

    reason: str
    failure: Failure
    version: str = ""


# Not frozen: it is made for each message, and a frozen class of so many fields takes eight times as long to make.
# Nobody changes one all the same: `changed` and `replace` make another.
@dataclass(slots=True, unsafe_hash=True)
class Delivery:
    """One record for one handler.

    Attributes:
        number: how often it was parked or replayed; part of the Celery task id from the first time on.
        runs: how often the handler ran for it so far.
        attempts: how those runs ended, and how often it could not run.
        first_failed_at: milliseconds since the epoch.
        dead: set once it is dead, until Kafka has the dead letter.
        publish_tries: how often publishing that dead letter has failed.
        error: the last failure in words, cut to `ERROR_LENGTH` characters, for people who ask for its state.
        ended: "done" or "dead" once it ended so, until the ledger has the mark: it does not run again.
        due: seconds since the epoch before which it must not run again.
        via: the record of a retry or replay topic by which it came; `None` if it came from its source topic.
        after: on an ordered topic, the offset of the delivery before it, which had not ended when this one was parked:
            it does not run before that.
        outgoing: the messages that its handler, which has succeeded, sends, until Kafka has taken them.
        again: a person's request to run it although it is done; empty: there is none.
        once: whether it was sent back for one attempt: a failure that would be retried is a dead letter.
        trace: the context of its last hop, if traces are on (bridge/telemetry/delivery_spans.py, which sets it).
        history: its last attempts, one by one; it decides nothing.
    """

    message: Message
    handler: str
    number: int = 0
    runs: int = 0
    attempts: Attempts = NO_ATTEMPTS
    first_failed_at: int | None = None
    dead: Dead | None = None
    publish_tries: int = 0
    error: str = ""
    ended: str = ""
    due: float | None = None
    via: Via | None = None
    after: int | None = None
    outgoing: tuple[OutgoingMessage, ...] = ()
    again: str = ""
    once: bool = False
    trace: str = field(default="", compare=False)
    history: History = field(default=(), compare=False)

    @property
    def identity(self) -> str:
        """Return `orders-3-1234:orders.handlers.charge`; the same through every retry, park and replay."""
        return f"{self.message.coordinates}:{self.handler}"

    @property
    def work(self) -> str:
        """Return the key of the work that must be done once: the identity, and `again` if a person asked for another
        run.
        """
        return work_of(self.identity, self.again)

    @property
    def task_id(self) -> str:
        """Return the Celery task id: the identity, and `#n` from the first park or replay on."""
        return f"{self.identity}#{self.number}" if self.number else self.identity

    @property
    def topic_id(self) -> str:
        """Return the id of the log that has the message; empty for a message that a test made by hand."""
        return self.message.origin.rpartition(" ")[2]

    def retried(self, *, replays: bool) -> bool:
        """Return whether the delivery is retried without a person's request.

        Parameters:
            replays: whether the record is known to come from a replay topic.
        """
        return self.via is not None and not replays and not self.attempts.replayed

    def changed(self, **values: Any) -> "Delivery":
        """Return this delivery with other values of some fields, as `replace`, which takes five times as long."""
        made = Delivery(*_read_fields(self))
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def failed(
        self, failure: Failure, *, spent: bool, seconds: float | None = None, worker: str = "", version: str = ""
    ) -> "Delivery":
        """Return this delivery after one more run that failed or was postponed.

        Parameters:
            spent: whether that spent a retry; else it was postponed.
            seconds: how long it ran.
            worker, version: where it ran, and of which code.
        """
        took = None if seconds is None else int(seconds * 1000)
        end = FAILED if spent else POSTPONED
        note = AttemptNote(self.runs + 1, failure.failed_at, took, str(failure), worker, version, end)
        return self.changed(
            history=add_attempt(self.history, note),
            runs=self.runs + 1,
            attempts=self.attempts.plus(failed=1) if spent else self.attempts.plus(postponed=1),
            first_failed_at=self.first_failed_at or failure.failed_at,
            error=cut(str(failure), ERROR_LENGTH),
        )

    def parked(self) -> "Delivery":
        """Return this delivery as it is parked: with the next number, and without its state within Celery."""
        return replace(self, number=self.number + 1, dead=None, publish_tries=0, ended="", due=None)

    def lost(self, times: int) -> "Delivery":
        """Return this delivery after so many runs whose process died."""
        return replace(self, runs=self.runs + times, attempts=self.attempts.plus(lost=times)) if times else self

    def __str__(self) -> str:
        return self.identity


_read_fields: Final = attrgetter(*(each.name for each in fields(Delivery)))


@dataclass(frozen=True, slots=True)
class Batch:
    """The deliveries that one Celery message carries: of one handler and one partition, in order; often just one.

    Attributes:
        cluster, group, topic_id: with topic and partition, where the ledger keeps their fates.
        order: "key" or "partition" if messages must run one after another, else `None`.

    Topic, partition and topic id are those of the source records. The deliveries came straight from the source topic,
    or all by one partition of a retry or replay topic (`via`).
    """

    handler: str
    topic: str
    partition: int
    deliveries: tuple[Delivery, ...]
    cluster: str = ""
    group: str = ""
    topic_id: str = ""
    order: str | None = None

    @property
    def offsets(self) -> list[int]:
        """Return the offsets of its messages, in order."""
        return [delivery.message.offset for delivery in self.deliveries]

    @property
    def via(self) -> Via | None:
        """Return the partition of a retry or replay topic that its deliveries came by, with the first one's offset."""
        return self.deliveries[0].via if self.deliveries else None

    @property
    def task_id(self) -> str:
        """Return the Celery task id: of its only delivery, or `orders-3-1200..1399:orders.handlers.charge`."""
        if len(self.deliveries) == 1:
            return self.deliveries[0].task_id
        number = max((delivery.number for delivery in self.deliveries), default=0)
        return batch_id(self.topic, self.partition, self.offsets, self.handler) + (f"#{number}" if number else "")

    def holding(self, deliveries: Iterable[Delivery]) -> "Batch":
        """Return a batch of the same partition and handler with other deliveries."""
        return replace(self, deliveries=tuple(deliveries))

    def __str__(self) -> str:
        return self.task_id
