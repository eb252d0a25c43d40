"""What a publisher with confirms sends again after a confirmation that did not come in time."""

from collections import defaultdict
from typing import Any

import pytest

from lossless.worker.publisher_confirms import ConfirmedPublisher


class Broker:
    """A connection to a RabbitMQ whose confirmations come when the test says so."""

    def __init__(self) -> None:
        self.events: dict[str, set[Any]] = defaultdict(set)
        self.sent: list[str] = []
        self.answers = False
        self.connection = self

    def ensure_connection(self, **_: Any) -> None:
        """Be connected."""

    def collect(self) -> None:
        """Forget the connection."""

    def channel(self) -> "Broker":
        return self

    def drain_events(self, timeout: float) -> None:
        """Answer the message that waits, if answers come."""
        if self.answers:
            self.answers = False
            for note in self.events["basic_ack"]:
                note(1, False)
        raise TimeoutError


def test_each_message_that_was_confirmed_late_is_sent_once() -> None:
    """The second of two late confirmations took the place of the first, which was sent again."""
    broker: Any = Broker()
    publisher = ConfirmedPublisher(broker, 5)

    def publish(key: str, *, late: bool = False) -> None:
        def send(channel: Broker, timeout: float) -> None:
            channel.sent.append(key)
            if late:
                raise TimeoutError

        publisher.publish(key, send)

    for key in ("first", "second"):
        with pytest.raises(TimeoutError):
            publish(key, late=True)
        broker.answers = True
    publish("first")
    publish("second")
    assert broker.sent == ["first", "second"]
    publish("first")  # the next message of the same key
    assert broker.sent == ["first", "second", "first"]


def test_what_was_confirmed_late_and_forgotten_is_sent_as_another_message() -> None:
    broker: Any = Broker()
    publisher = ConfirmedPublisher(broker, 5)

    def send_late(channel: Broker, timeout: float) -> None:
        channel.sent.append("first")
        raise TimeoutError

    with pytest.raises(TimeoutError):
        publisher.publish("first", send_late)
    broker.answers = True
    publisher.publish("other", lambda channel, timeout: channel.sent.append("other"))
    publisher.forget_arrived()
    publisher.publish("first", lambda channel, timeout: channel.sent.append("first"))
    assert broker.sent == ["first", "other", "first"]
