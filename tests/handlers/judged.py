"""Handlers whose records fail as often as they say, and whose policies tests change at run time."""

import os
from typing import Any

from tasks import Message, handler
from tests.handlers.notes import note, topic

#: TEST_DELAYS: another version of the code, whose policy has explicit delays.
OPTIONS: dict[str, Any] = (
    {"retry_delays": (0.2,) * 2} if "TEST_DELAYS" in os.environ else {"max_retries": 1, "default_retry_delay": 0.2}
)


class CardDeclined(Exception):
    """Of the bank."""


@handler(topic("orders"), **OPTIONS)
def charge(order: Any, message: Message) -> None:
    """`{"fails": n}`: its first n runs fail."""
    note("charge", message, order, "begun")
    if message.attempt <= order["fails"]:
        raise CardDeclined("try again") if order.get("declined") else ConnectionError("for a while")
    note("charge", message, order)


if "TEST_RENAMED" not in os.environ:

    @handler(topic("mails"), max_retries=None, default_retry_delay=0.2)
    def mail(order: Any, message: Message) -> None:
        """Fails for ever."""
        note("mail", message, order, "begun")
        raise ConnectionError("always")
