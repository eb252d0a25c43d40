"""RabbitMQ as the Celery broker: what is sent is there when the sending returns, or it raises."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Queue
from kombu.exceptions import OperationalError

from bridge.dispatch.celery_broker import ANSWER_WITHIN, CeleryBroker
from bridge.dispatch.celery_message import OutgoingBatch
from bridge.errors import HandoffFailed
from lossless.worker import message_replacement
from lossless.worker.message_burial import Successor
from lossless.worker.message_replacement import MessageReplacement, pending_replacements
from lossless.worker.publisher_confirms import ConfirmingAMQP
from tasks.declaration.celery_defaults import DEFAULTS
from tests.servers.rabbitmq import RabbitmqServer

#: A queue that takes one message, and refuses what comes after it.
FULL: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}


@pytest.fixture
def app(rabbitmq: RabbitmqServer, topic_prefix: str) -> Iterator[Celery]:
    """An app whose default queue takes one message."""
    made = Celery("confirmed", set_as_current=False, amqp=ConfirmingAMQP)
    queues = [Queue(topic_prefix, queue_arguments=FULL)]
    own = {"broker_url": rabbitmq.url, "task_default_queue": topic_prefix, "task_queues": queues}
    made.add_defaults(lambda: {**DEFAULTS, **own})
    yield made
    made.close()


@pytest.fixture
def broker(app: Celery) -> Iterator[CeleryBroker]:
    with closing(CeleryBroker(app)) as made:
        yield made


def outgoing(number: int) -> OutgoingBatch:
    header = {"group": "g", "topic": "orders"}
    return OutgoingBatch("charge", f"orders-0-{number}:charge", "", header)


def test_what_is_handed_off_is_in_its_queue_when_the_hand_off_returns(
    broker: CeleryBroker, rabbitmq: RabbitmqServer, topic_prefix: str
):
    broker.publish([outgoing(0)])
    assert rabbitmq.waiting(topic_prefix) == 1


def test_a_hand_off_that_rabbitmq_refuses_has_failed(broker: CeleryBroker, rabbitmq: RabbitmqServer, topic_prefix: str):
    broker.publish([outgoing(0)])
    with pytest.raises(HandoffFailed, match="MessageNacked"):
        broker.publish([outgoing(1)])
    assert rabbitmq.waiting(topic_prefix) == 1


def test_a_hand_off_to_a_rabbitmq_that_does_not_answer_fails_within_seconds(
    broker: CeleryBroker, rabbitmq: RabbitmqServer
):
    broker.publish([outgoing(0)])
    rabbitmq.freeze()
    began = time.monotonic()
    try:
        with pytest.raises(HandoffFailed):
            broker.publish([outgoing(1)])
    finally:
        rabbitmq.thaw()
    assert time.monotonic() - began < 2 * ANSWER_WITHIN


def test_a_task_that_sends_what_rabbitmq_refuses_hears_of_it_before_it_is_acknowledged(
    app: Celery, rabbitmq: RabbitmqServer, topic_prefix: str
):
    """A retry is sent by the task's process, and the message that it stands for is acknowledged by another."""
    app.send_task("charge")
    with pytest.raises(OperationalError):
        app.send_task("charge")
    assert rabbitmq.waiting(topic_prefix) == 1


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the worker's event loop is asked to do later."""
    calls: list[Callable[[], None]] = []
    hub = SimpleNamespace(
        call_later=lambda pause, act: calls.append(act), call_soon=lambda act, *arguments: act(*arguments)
    )
    monkeypatch.setattr(message_replacement, "get_event_loop", lambda: hub)
    return calls


def test_a_message_whose_successor_rabbitmq_refuses_is_kept_until_it_has_it(
    later: list[Callable[[], None]], app: Celery, rabbitmq: RabbitmqServer, topic_prefix: str
):
    app.send_task("charge")
    successor = Successor(
        why="it failed", body="", content_type="application/json", content_encoding="utf-8", headers={}, properties={},
        exchange="", routing_key=topic_prefix, queue=None, eta=None,
    )  # fmt: skip
    with Connection(rabbitmq.url) as connection:
        channel: Any = connection.channel()
        other = f"{topic_prefix}.other"
        channel.queue_declare(other)
        channel.basic_publish(
            channel.prepare_message("{}", content_type="application/json", content_encoding="utf-8"), "", other
        )
        message: Any = None
        while message is None:
            message = channel.basic_get(other)
        taken = channel.message_to_python(message)
        made = MessageReplacement(taken, successor)
        made.start()
        assert made in pending_replacements
        assert not taken.acknowledged
        channel.queue_purge(topic_prefix)
        later.pop()()
        assert made not in pending_replacements
        assert taken.acknowledged
    assert rabbitmq.waiting(topic_prefix) == 1
