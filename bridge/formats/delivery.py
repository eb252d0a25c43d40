"""The message that a handler sees, its delivery with the attempts so far, and the batch in which deliveries travel
through Celery.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from bridge.formats.delivery_identity import batch_id, work_of
from bridge.formats.failure import Failure, cut
from bridge.formats.outbox import Outbox, OutgoingMessage


class Attempts(NamedTuple):
    """What has become of a delivery's attempts so far.

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
        """The same with more of each."""
        return Attempts(self.failed + failed, self.lost + lost, self.postponed + postponed, self.replayed + replayed)

    def __str__(self) -> str:
        """`3 failed, 1 lost`; `none` where there were none."""
        said = ", ".join(f"{count} {name}" for name, count in zip(self._fields, self, strict=True) if count)
        return said or "none"


#: Those of what was never attempted.
NO_ATTEMPTS: Final = Attempts()


#: Longest text of a failure that travels with a delivery that runs again.
ERROR_LENGTH = 300

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A Kafka record as a handler sees it.

    Attributes:
        topic, partition, offset: where the record first lay.
        key, value: byte for byte as produced; `None` as in Kafka.
        headers: the producer's own, in order, names may repeat.
        timestamp: milliseconds since the epoch, or `None` if the record has none.
        attempt: 1 for the first run of the handler, counted over every kind of retry.
        attempts: what became of the runs before: `failed`, `lost`, `postponed`, `replayed`.
        delivery: the identity of the delivery, where a handler was given this message; and by what it was asked for
            again, where it was though it is done.
        origin: what tells that identity from the same one of another Kafka or group, or of a topic that was
            deleted and made again.
        outbox: what the handler sends (`publish`), where it does.
    """

    topic: str
    partition: int
    offset: int
    # Not in the repr, which loggers and error collectors take of whatever they meet.
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
        """The last header of that name, or `None`."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def settle_with(self, session: Any) -> None:
        """Write "done" in the handler's own database transaction, so that work and mark commit or roll back together.

        A mark made by work that was rolled back does not count. After a crash between the commit and the ledger's
        mark, the delivery comes again; this then ends the handler before its work is done twice.

        Parameters:
            session: a SQLAlchemy session (or connection) in which the handler does its work, or Django's
                `connection` inside `transaction.atomic()`.

        Raises:
            AlreadySettled: the work was committed by an earlier run; let it pass.
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
            TypeError, ValueError: it is nothing that Kafka can carry.
        """
        self._own_outbox().add(topic, value, key, headers)

    def _own_outbox(self) -> Outbox:
        if self.outbox is None:
            # A message that a test has made by hand is of no handler.
            object.__setattr__(self, "outbox", Outbox(self.delivery or self.coordinates, self.origin))
        assert self.outbox is not None
        return self.outbox

    @property
    def coordinates(self) -> str:
        """`orders-3-1234`: the record's place in Kafka."""
        return f"{self.topic}-{self.partition}-{self.offset}"


class Via(NamedTuple):
    """The record of a retry or replay topic by which a delivery came again: where that lies."""

    topic: str
    partition: int
    offset: int
    topic_id: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True)
class Dead:
    """Why a delivery is dead: decided, and perhaps not yet acknowledged by Kafka.

    Attributes:
        version: of the handler's code that failed; empty where nobody knows it.
    """

    reason: str
    failure: Failure
    version: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for one handler.

    Attributes:
        number: how often it was parked or replayed; part of the Celery task id from the first time on.
        runs: how often the handler ran for it so far.
        attempts: what became of those runs, and of what kept it from running.
        first_failed_at: milliseconds since the epoch.
        dead: set when it is decided that it is dead, until Kafka has the dead letter.
        publish_tries: how often publishing that dead letter has failed.
        error: the last failure in words, cut to `ERROR_LENGTH` characters, for whoever asks how it stands.
        ended: "done" or "dead" when it has ended so, until the ledger has the mark: it does not run again.
        due: seconds since the epoch before which it must not run again.
        via: the record of a retry or replay topic by which it came; `None`: straight from its source.
        after: on an ordered topic, the offset of the one before it in its order, which had not ended when this one was
            parked behind it: it does not run before that.
        outgoing: what its handler sends, which has succeeded and does not run again, until Kafka has taken it.
        again: by what a person asked that it run though it is done; empty: it does not.
        once: whether it was sent back for one attempt: a failure that would be retried is a dead letter.
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

    @property
    def identity(self) -> str:
        """`orders-3-1234:orders.handlers.charge`; the same through every retry, park and replay."""
        return f"{self.message.coordinates}:{self.handler}"

    @property
    def work(self) -> str:
        """What is to be done once: the identity, and by what it was asked for again, where it was."""
        return work_of(self.identity, self.again)

    @property
    def task_id(self) -> str:
        """The Celery task id: the identity, and `#n` from the first park or replay on."""
        return f"{self.identity}#{self.number}" if self.number else self.identity

    @property
    def topic_id(self) -> str:
        """The id of the log that the message lay in; empty for a message that a test has made by hand."""
        return self.message.origin.rpartition(" ")[2]

    def retried(self, *, replays: bool) -> bool:
        """Whether it comes again without a person's doing.

        Parameters:
            replays: whether it is known that it came by a replay topic.
        """
        return self.via is not None and not replays and not self.attempts.replayed

    def failed(self, failure: Failure, *, spent: bool) -> "Delivery":
        """This delivery after one more run that did not end well.

        Parameters:
            spent: whether that spent a retry; else it was postponed.
        """
        return replace(
            self,
            runs=self.runs + 1,
            attempts=self.attempts.plus(failed=1) if spent else self.attempts.plus(postponed=1),
            first_failed_at=self.first_failed_at or failure.failed_at,
            error=cut(str(failure), ERROR_LENGTH),
        )

    def parked(self) -> "Delivery":
        """This delivery as it is parked: with a number of its own, and nothing of its way through Celery."""
        return replace(self, number=self.number + 1, dead=None, publish_tries=0, ended="", due=None)

    def lost(self, times: int) -> "Delivery":
        """This delivery after so many runs of which no process came back."""
        return replace(self, runs=self.runs + times, attempts=self.attempts.plus(lost=times)) if times else self

    def __str__(self) -> str:
        return self.identity


@dataclass(frozen=True, slots=True)
class Batch:
    """What one Celery message carries: deliveries of one handler and one partition, in order; often just one.

    Attributes:
        cluster, group, topic_id: with topic and partition, where the ledger keeps their fates.
        order: "key" or "partition" where messages must run one after another, else `None`.

    All of it is the origin's, where the records first lay. Its deliveries came straight from there, or all by one
    partition of a retry or replay topic (`via`).
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
        """The offsets of its messages, in order."""
        return [delivery.message.offset for delivery in self.deliveries]

    @property
    def via(self) -> Via | None:
        """The partition of a retry or replay topic by which its deliveries came; its offset is the first one's."""
        return self.deliveries[0].via if self.deliveries else None

    @property
    def task_id(self) -> str:
        """The Celery task id: that of its only delivery, or `orders-3-1200..1399:orders.handlers.charge`."""
        if len(self.deliveries) == 1:
            return self.deliveries[0].task_id
        number = max((delivery.number for delivery in self.deliveries), default=0)
        return batch_id(self.topic, self.partition, self.offsets, self.handler) + (f"#{number}" if number else "")

    def holding(self, deliveries: Iterable[Delivery]) -> "Batch":
        """A batch of the same partition and handler with other deliveries."""
        return replace(self, deliveries=tuple(deliveries))

    def __str__(self) -> str:
        return self.task_id
