"""The outbox of a handler's run: the messages that it sends, published once it has succeeded.

The n-th message of a delivery has the same id in every run.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from bridge.errors import AlreadySettled, CannotSettle
from bridge.formats.text_forms import to_bytes, to_headers, to_pairs, to_text
from bridge.formats.user_database import (
    SessionTransaction,
    UserDatabase,
    find_user_database,
    make_mark,
    put_in_outbox,
    settle_all_with,
    settle_with,
)

#: The header that holds the message's id.
MESSAGE_ID_HEADER: Final = "message_id"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message that a handler sends.

    Attributes:
        id: the value of its `message_id` header; empty if it has none, as it is not the handler's own.
    """

    topic: str
    id: str
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)

    def to_data(self) -> list[Any]:
        """Return the message as JSON-able data."""
        return [self.topic, self.id, to_text(self.key), to_text(self.value), to_pairs(self.headers)]

    @classmethod
    def from_data(cls, data: Any) -> "OutgoingMessage":
        """Return the message from the data that `to_data` made.

        Raises:
            ValueError, TypeError: it is nothing that `to_data` gave.
        """
        topic, name, key, value, pairs = data
        return cls(str(topic), str(name), to_bytes(key), to_bytes(value), to_headers(pairs))


class Outbox:
    """The messages that one run of a handler sends.

    Attributes:
        messages: in the order in which they were given.
        home: the user's database that holds them too, if the handler settles its delivery there.
        committed_before: whether an earlier run has committed the work together with its messages.
        make_trace_headers: returns the headers by which the trace of the running handler goes on, for the names of the
            headers that a message has; `None`: this process makes no traces.
    """

    make_trace_headers: ClassVar[Callable[[Collection[str]], list[tuple[str, bytes]]] | None] = None

    def __init__(self, delivery: str, origin: str) -> None:
        self._delivery, self._origin = delivery, origin
        self.messages: list[OutgoingMessage] = []
        self.home: UserDatabase | None = None
        self.committed_before = False
        self._session: Any = None
        self._transaction: SessionTransaction | None = None
        #: The number of messages before the first transaction.
        self._before: int | None = None

    def add(self, topic: str, value: Any, key: str | bytes | None, headers: Any) -> OutgoingMessage:
        """Collect a message; with a session, write it into the handler's transaction too.

        Raises:
            TypeError, ValueError: it is nothing that Kafka can carry.
            CannotSettle: the transaction that settles the delivery is over: it would not be sent after a crash.
        """
        if not topic or not isinstance(topic, str):
            raise ValueError(f"message.publish takes the name of a topic; it was given {topic!r}.")
        number = len(self.messages)
        theirs = _headers(headers)
        if (make_trace_headers := Outbox.make_trace_headers) is not None:
            theirs = (*theirs, *make_trace_headers({name for name, _ in theirs}))
        made = OutgoingMessage(topic, self._id(number), _encode_text(key, "key"), encode_value(value), theirs)
        if self._transaction is not None:
            self._put(number, made)
        self.messages.append(made)
        return made

    def settle_with(self, session: Any) -> None:
        """Mark the delivery done in the handler's transaction; the messages are committed or rolled back with it.

        Raises:
            AlreadySettled, CannotSettle: as bridge.formats.user_database.settle_with.
        """
        self.home = find_user_database(session)
        try:
            settle_with(session, self._delivery, self._origin)
        except AlreadySettled:
            self.committed_before = True
            raise
        self._join(session, SessionTransaction(session))

    def _join(self, session: Any, transaction: SessionTransaction) -> None:
        """Write the messages so far into the transaction that settles the delivery; later ones follow."""
        # The transaction before was rolled back, and its messages with it; the handler tries again.
        self._before = len(self.messages) if self._before is None else self._before
        del self.messages[self._before :]
        self._session, self._transaction = session, transaction
        for number, made in enumerate(self.messages):
            self._put(number, made)

    def left(self) -> list[OutgoingMessage]:
        """Return the messages to publish after the handler succeeded; with a database, those committed there by any
        run.
        """
        if self.home is None or not (self.messages or self.committed_before):
            return self.messages
        return [OutgoingMessage.from_data(json.loads(body)) for body in self.home.left(self.mark)]

    def published(self) -> None:
        """Delete the messages from the user's database: Kafka has all of them."""
        if self.home is not None:
            self.home.take_out(self.mark)

    @property
    def mark(self) -> str:
        """Return the key of the delivery's rows in the user's database."""
        return make_mark(self._delivery, self._origin)

    @property
    def whose(self) -> str:
        """Return the Kafka cluster and the group of the delivery."""
        return self._origin.rpartition(" ")[0]

    def _put(self, number: int, made: OutgoingMessage) -> None:
        assert self._transaction is not None
        if not self._transaction.goes_on:
            raise CannotSettle(
                f"{self._delivery}: message.publish was called after the transaction of settle_with had ended: call it "
                "before the commit, so that both are committed or neither."
            )
        put_in_outbox(self._session, self.mark, number, self.whose, json.dumps(made.to_data()))

    def _id(self, number: int) -> str:
        topic_id = self._origin.rpartition(" ")[2]
        return f"{self._delivery}:{number}@{topic_id}" if topic_id else f"{self._delivery}:{number}"


def settle_outboxes(outboxes: Sequence[Outbox], session: Any) -> SessionTransaction:
    """Mark the deliveries of several outboxes done in the handler's transaction, and return that.

    Raises:
        AlreadySettled: some are marked already, and `committed_before` of their outboxes says so; none is marked now.
        CannotSettle: as bridge.formats.user_database.settle_all_with.
    """
    home = find_user_database(session)
    for outbox in outboxes:
        outbox.home = home
    found = settle_all_with(session, {outbox.mark: (outbox._delivery, outbox._origin) for outbox in outboxes})
    for outbox in outboxes:
        outbox.committed_before = outbox.mark in found
    if found:
        raise AlreadySettled(f"{len(found)} of {len(outboxes)} deliveries were committed by an earlier run.")
    transaction = SessionTransaction(session)
    for outbox in outboxes:
        outbox._join(session, transaction)
    return transaction


def encode_value(value: Any) -> bytes | None:
    """Return a value's bytes: bytes as they are, text in UTF-8, a pydantic model by itself, anything else as JSON.

    Raises:
        TypeError: JSON has no form for it.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if callable(dump := getattr(value, "model_dump_json", None)):
        return str(dump()).encode()
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"message.publish takes bytes, text, a pydantic model or what JSON has a form for: {error}."
        ) from None


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given or ()
    return tuple((str(name), _encode_text(value, f"header {name!r}")) for name, value in pairs)


def _encode_text(given: str | bytes | None, what: str) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise TypeError(f"message.publish: {what} must be text, bytes or None; it was given {type(given).__name__}.")
