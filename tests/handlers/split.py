"""One handler of one topic, which the environment names: what a deployment has of an application that is split."""

import os
from typing import Any

from tasks import DeadLetter, Message, handler
from tests.handlers.notes import note, topic

NAME = os.environ["TEST_TOPIC"]


@handler(topic(NAME), name=f"split.{NAME}", retry_delays=(0.3,) * 5)
def work(order: dict[str, Any], message: Message) -> None:
    """`{"dead": true}` dies; `{"fail": n}` fails n times; anything else is done."""
    if order.get("dead"):
        raise DeadLetter("as it says")
    if message.attempt <= order.get("fail", 0):
        raise ConnectionError("as it says")
    note("work", message, order)
