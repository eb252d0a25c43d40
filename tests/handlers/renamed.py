"""The handler of tests/handlers/simple.py, after it was given another name and another module."""

from typing import Any

from tasks import Message, handler
from tests.handlers.notes import note, topic


@handler(topic("orders"), aliases=("tests.handlers.simple.work",))
def renamed(order: Any, message: Message) -> None:
    note("renamed", message, order)
