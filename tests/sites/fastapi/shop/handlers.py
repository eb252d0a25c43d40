"""What is done with records of Kafka."""

import os

import shop.celery  # the app, before the first handler
from tasks import handler

app = shop.celery.app


@handler(os.environ["TEST_TOPIC"])
def charge(order: dict) -> None:
    """Charge the card."""
