"""A handler with a model and an older one, whose code is broken in some versions; and another of the same topic."""

import os
from typing import Any

from pydantic import BaseModel

from tasks import DeadLetter, Message, handler
from tests.handlers.notes import note, topic

#: In these versions of the code an order that is `bad` dies.
BROKEN = os.environ.get("TEST_BROKEN", "1").split(",")


class Order(BaseModel):
    """What is charged.

    Attributes:
        bad: whether it dies where the code is broken.
    """

    amount: int
    bad: bool = False


def lifted(order: dict[str, Any]) -> dict[str, Any]:
    """An order of last year's model."""
    return {"amount": order["cents"]}


@handler(topic("orders"), upgrade=lifted)
def charge(order: Order, message: Message) -> None:
    """Dies of what is bad in a version that is broken."""
    note("charge", message, order.model_dump(), "begun")
    if order.bad and os.environ.get("KAFKA_HANDLERS_VERSION") in BROKEN:
        raise DeadLetter("the bank does not take it")
    note("charge", message, order.model_dump())


@handler(topic("orders"))
def notify(order: Any, message: Message) -> None:
    """Is always done."""
    note("notify", message, order)
