"""RabbitMQ as the Celery broker: what is sent is there when the sending returns, or it raises."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
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
from tests.processes import eventually
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


@pytest.fixture
def alarm(rabbitmq: RabbitmqServer) -> Iterator[RabbitmqServer]:
    """A RabbitMQ whose memory alarm a test may raise, and which has none afterwards."""
    yield rabbitmq
    rabbitmq.let_publishers_go_on()


@pytest.fixture
def roomy(app: Celery) -> str:
    """A queue without a limit, in place of the app's default queue."""
    name = f"{app.conf.task_default_queue}.roomy"
    app.conf.task_queues = [Queue(name)]
    app.conf.task_default_queue = name
    return name


def test_a_hand_off_that_waits_for_a_memory_alarm_to_end_is_tried_once(
    broker: CeleryBroker, alarm: RabbitmqServer, roomy: str
):
    """RabbitMQ reads each try that it blocked when the alarm ends, from connections that are closed too."""
    alarm.block_publishers()
    for _ in range(4):
        with pytest.raises(HandoffFailed):
            broker.publish([outgoing(0)])
    alarm.let_publishers_go_on()
    publish_at_last(broker, [outgoing(0)])
    assert alarm.waiting(roomy) == 1


def test_a_memory_alarm_between_two_hand_offs_costs_no_second_copy_and_queues_stay_readable(
    broker: CeleryBroker, alarm: RabbitmqServer, roomy: str
):
    broker.publish([outgoing(0)])
    alarm.block_publishers()
    for _ in range(4):
        with pytest.raises(HandoffFailed):
            broker.publish([outgoing(1)])
        assert broker.read_lengths([roomy]) == {roomy: 1}
    alarm.let_publishers_go_on()
    publish_at_last(broker, [outgoing(1)])
    assert alarm.waiting(roomy) == 2


def test_a_hand_off_to_a_frozen_rabbitmq_is_not_repeated_before_it_is_known_to_be_there(
    broker: CeleryBroker, rabbitmq: RabbitmqServer, roomy: str
):
    broker.publish([outgoing(0)])
    rabbitmq.freeze()
    try:
        for _ in range(3):
            with pytest.raises(HandoffFailed):
                broker.publish([outgoing(1)])
    finally:
        rabbitmq.thaw()
    publish_at_last(broker, [outgoing(1)])
    assert rabbitmq.waiting(roomy) == 2


def test_a_hand_off_whose_queue_was_deleted_has_failed_and_the_next_try_makes_the_queue_again(
    broker: CeleryBroker, rabbitmq: RabbitmqServer, roomy: str
):
    broker.publish([outgoing(0)])
    with Connection(rabbitmq.url) as connection:
        channel: Any = connection.default_channel
        channel.queue_delete(roomy)
    with pytest.raises(HandoffFailed, match="NO_ROUTE"):
        broker.publish([outgoing(1)])
    broker.publish([outgoing(1)])
    assert rabbitmq.waiting(roomy) == 1


def test_a_step_that_fails_in_its_middle_says_how_many_of_its_messages_are_in_the_queue(
    broker: CeleryBroker, rabbitmq: RabbitmqServer, topic_prefix: str
):
    with pytest.raises(HandoffFailed) as failed:
        broker.publish([outgoing(0), outgoing(1), outgoing(2)])
    assert failed.value.confirmed == rabbitmq.waiting(topic_prefix) == 1


def publish_at_last(broker: CeleryBroker, batches: list[OutgoingBatch]) -> None:
    """Publish as the bridge does: again until it succeeds."""

    def published() -> bool:
        with suppress(HandoffFailed):
            broker.publish(batches)
            return True
        return False

    eventually(published, 30, "it is handed off")


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


def successor(queue: str) -> Successor:
    return Successor(
        why="it failed", body="[]", content_type="application/json", content_encoding="utf-8", headers={},
        properties={}, exchange="", routing_key=queue, queue=None, eta=None,
    )  # fmt: skip


def test_a_message_whose_successor_rabbitmq_refuses_is_kept_until_it_has_it(
    later: list[Callable[[], None]], app: Celery, rabbitmq: RabbitmqServer, topic_prefix: str
):
    app.send_task("charge")
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
        made = MessageReplacement(taken, successor(topic_prefix))
        made.start()
        assert made in pending_replacements
        assert not taken.acknowledged
        channel.queue_purge(topic_prefix)
        later.pop()()
        assert made not in pending_replacements
        assert taken.acknowledged
    assert rabbitmq.waiting(topic_prefix) == 1


def test_a_message_whose_successor_waits_for_a_memory_alarm_to_end_is_replaced_by_one_copy(
    later: list[Callable[[], None]], app: Celery, alarm: RabbitmqServer, roomy: str
):
    with Connection(alarm.url) as connection:
        channel: Any = connection.channel()
        other = f"{roomy}.other"
        channel.queue_declare(other)
        channel.queue_declare(roomy, durable=True, auto_delete=False)
        channel.basic_publish(
            channel.prepare_message("{}", content_type="application/json", content_encoding="utf-8"), "", other
        )
        raw: Any = eventually(lambda: channel.basic_get(other), 10, "it is there")
        alarm.block_publishers()
        taken = channel.message_to_python(raw)
        made = MessageReplacement(taken, successor(roomy))
        made.start()
        for _ in range(3):
            later.pop()()
        assert not taken.acknowledged
        alarm.let_publishers_go_on()

        def replaced() -> bool:
            while later:
                later.pop()()
            return made not in pending_replacements

        eventually(replaced, 30, "it is replaced")
        assert taken.acknowledged
    assert alarm.waiting(roomy) == 1
