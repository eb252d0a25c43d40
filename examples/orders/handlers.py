"""Handlers of orders: charge the card, write to the customer. A package of your own looks like this.

Only the services are simulated (services.py): an order's `trouble` says how they fail, and how often is
counted by `message.attempt`. Real handlers need neither.
"""

from celery.exceptions import SoftTimeLimitExceeded
from pydantic import BaseModel, Field

from tasks import DeadLetter, Message, RetryLater, handler

from .services import BankBusy, CardDeclined, NoSuchMailbox, charge_card, send_mail

EUROS = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17}
CARD_LIMIT = 10_000


class Order(BaseModel):
    """What a record of `orders` must hold; a record that does not is dead-lettered as `undecodable`."""

    id: int
    customer: str
    amount: float = Field(gt=0)
    currency: str
    trouble: str = ""


@handler(
    "orders",
    autoretry_for=(ConnectionError, SoftTimeLimitExceeded),  # these pass; any other error is a dead letter
    dead_letter_for=(CardDeclined,),
    max_retries=3,
    retry_backoff=1,  # after at most 1, 2, 4 s, drawn at random
    give_up_after=600,
    soft_time_limit=2,
)
def charge(order: Order | None, message: Message) -> str:
    """Charge the card."""
    if order is None:
        return "deleted"
    euros = order.amount * EUROS[order.currency]
    if euros > CARD_LIMIT:
        raise DeadLetter(f"{euros:.0f} EUR is too much for a card: write an invoice")
    try:
        return charge_card(euros, order.trouble, message.attempt)
    except BankBusy as busy:
        raise RetryLater(busy.retry_after, str(busy)) from busy


@handler("orders", retry_delays=(1, 2, 3), dead_letter_for=(NoSuchMailbox,))
def notify(order: Order | None, message: Message) -> None:
    """Tell the customer that the order has come."""
    if order is not None:
        send_mail(order.customer, f"Thank you for order {order.id}.", order.trouble, message.attempt)
