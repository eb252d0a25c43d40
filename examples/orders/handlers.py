"""Handlers of orders: charge the card, then tell the customer."""

import time

from pydantic import BaseModel

from tasks import DeadLetter, Message, RetryLater, handler


class Order(BaseModel):
    id: int
    amount: float
    fail: str = ""


@handler("orders", autoretry_for=(ConnectionError,), max_retries=5, retry_backoff=1, retry_backoff_max=60)
def charge(order: Order) -> str:
    if order.fail == "transient":
        raise ConnectionError("bank is away")
    if order.fail == "permanent":
        raise ValueError("no such card")
    return f"charged {order.id}"
