"""A shop's handlers on the night in which many orders came with a total that is no number."""

import os
from decimal import Decimal, InvalidOperation
from pathlib import Path

from pydantic import BaseModel

from tasks import DeadLetter, Message, handler
from tests.handlers.notes import note, topic


class Order(BaseModel):
    """What the shop sells.

    Attributes:
        total: as the till has written it.
    """

    order: str
    total: str
    currency: str = "EUR"


def to_minor(total: str) -> int:
    """Cents of a total."""
    return int(Decimal(total) * 100)


def mended() -> bool:
    """Whether the code takes a comma by now."""
    return Path(os.environ["TEST_RUNS"] + ".mended").exists()


@handler(topic("orders"), name="orders.handlers.charge", dead_letter_for=(InvalidOperation,), retry_delays=(0.1, 0.1))
def charge(order: Order, message: Message) -> None:
    """Dies of a total with a comma until it is mended, and of a card that is declined for ever."""
    note("charge", message, order.order, "begun")
    if order.currency == "XXX":
        raise DeadLetter(f"the bank knows no currency {order.currency}")
    to_minor(order.total.replace(",", ".") if mended() else order.total)
    note("charge", message, order.order)


@handler(topic("orders"), name="orders.handlers.notify")
def notify(order: Order, message: Message) -> None:
    """Is always done."""
    note("notify", message, order.order)


@handler(topic("refunds"), name="refunds.handlers.pay_back")
def pay_back(order: Order, message: Message) -> None:
    """Is always done."""
    note("pay_back", message, order.order)
