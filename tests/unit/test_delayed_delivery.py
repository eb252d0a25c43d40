"""What has waited in RabbitMQ arrives as if it had been sent to its queue."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kombu import Exchange, Queue
from kombu.transport.native_delayed_delivery import calculate_routing_key

from lossless.worker import delayed_delivery
from lossless.worker.delayed_delivery import add_delay, note_delayed_queues, undo_delay
from lossless.worker.message_burial import Successor


def successor(queue: str, wait: float) -> Successor:
    return Successor(
        exchange="", routing_key=queue, body="", content_type=None, content_encoding=None, headers={},
        eta=time.time() + wait,
    )  # fmt: skip


def arrived(exchange: str, routing_key: str) -> SimpleNamespace:
    headers = {"id": "1", "x-death": [{"count": 1}], "x-first-death-queue": "q", "x-last-death-reason": "expired"}
    return SimpleNamespace(
        delivery_info={"exchange": exchange, "routing_key": routing_key, "redelivered": False}, headers=headers
    )


def test_a_message_that_has_waited_names_its_queue_and_nothing_of_its_way():
    message = arrived("celery_delayed_1", calculate_routing_key(10, "shop.key"))
    undo_delay(message, {"shop.key": "shop"})
    assert message.delivery_info == {"exchange": "", "routing_key": "shop", "redelivered": False}
    assert message.headers == {"id": "1"}


def test_a_message_that_came_by_its_queue_s_own_exchange_names_its_queue():
    message = arrived("eu.shop", "eu%2Eshop")
    undo_delay(message, {"eu%2Eshop": "eu.shop"})
    assert message.delivery_info == {"exchange": "", "routing_key": "eu.shop", "redelivered": False}


def test_a_message_that_has_not_waited_is_left_as_it_is():
    message = arrived("news", "1.0.shop")
    undo_delay(message, {"shop": "other"})
    assert (message.delivery_info["exchange"], message.delivery_info["routing_key"]) == ("news", "1.0.shop")
    assert len(message.headers) == 4


def test_what_a_worker_gives_back_waits_in_rabbitmq_and_returns_to_its_queue(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delayed_delivery, "_delayed", {})
    note_delayed_queues([Queue("shop", Exchange("shop", "topic"), "key"), Queue("old", Exchange("old", "direct"))])
    sent = add_delay(successor("shop", 10.9))
    assert (sent.exchange, sent.routing_key) == ("celery_delayed_27", calculate_routing_key(10, "key"))
    for kept in (successor("shop", 0.9), successor("old", 10.9), replace(successor("shop", 10.9), eta=None)):
        assert add_delay(kept) is kept
