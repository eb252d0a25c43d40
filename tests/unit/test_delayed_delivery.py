"""What has waited in RabbitMQ arrives as if it had been sent to its queue."""

from types import SimpleNamespace

from kombu.transport.native_delayed_delivery import calculate_routing_key

from lossless.worker.delayed_delivery import undo_delay


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


def test_a_message_that_has_not_waited_is_left_as_it_is():
    message = arrived("news", "1.0.shop")
    undo_delay(message, {"shop": "other"})
    assert (message.delivery_info["exchange"], message.delivery_info["routing_key"]) == ("news", "1.0.shop")
    assert len(message.headers) == 4
