"""One handler that does what the record says."""

import logging
import os
import time
from typing import Any

from tasks import DeadLetter, Message, handler
from tests.handlers.notes import note, topic


@handler(topic("orders"), retry_delays=(float(os.environ.get("TEST_DELAY", "0.2")),) * 2)
def work(order: Any, message: Message) -> None:
    """`{"sleep": s}` takes so long; `{"dead": true}` dies; `{"fail": true}` fails; anything else is done."""
    said = order if isinstance(order, dict) else {}
    note("work", message, order, "begun")
    if said.get("log"):
        logging.getLogger("shop").warning("charging", extra={"amount": 7})
    time.sleep(float(said.get("sleep", 0)))
    if said.get("dead"):
        raise DeadLetter(str(said["dead"]))
    if said.get("fail"):
        raise ConnectionError("always")
    note("work", message, order)


if "TEST_SECOND_TOPIC" in os.environ:

    @handler(topic("later"))
    def second(order: Any, message: Message) -> None:
        """For a topic that is made while the bridge runs."""
        note("second", message, order)
