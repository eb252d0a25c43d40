"""A handler of values that a schema of a schema registry wrote."""

from typing import Any

from tasks import Message, Registry, handler
from tests.handlers.notes import note, topic


@handler(topic("orders"), codec=Registry(), max_retries=0)
def charge(order: Any, message: Message) -> None:
    """It has no retries: an outage of the registry that spent one would make a dead letter."""
    note("charge", message, order["id"])
