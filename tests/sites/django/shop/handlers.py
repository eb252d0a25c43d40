"""Handlers, found by `autodiscover_tasks(related_name="handlers")`."""

import os

from django.db import connection, transaction

from shop.models import Payment
from tasks import DeadLetter, Message, handler


@handler(os.environ["TEST_TOPIC"])
def charge(order: dict, message: Message) -> None:
    """Write a payment, in the transaction that settles the delivery."""
    if order["amount"] <= 0:
        raise DeadLetter("nothing to charge")
    with transaction.atomic():
        message.settle_with(connection)
        Payment.objects.create(order=order["id"])
