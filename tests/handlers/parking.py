"""Handlers whose waits are long enough for a retry topic, in tests whose `kafka_park_after` is short."""

import os
import time
from typing import Any

from tasks import DeadLetter, Message, RetryLater, handler
from tests.handlers.notes import note, topic

#: "auto", or how many deliveries a message carries.
BATCH: Any = int(os.environ.get("TEST_BATCH", "0")) or "auto"
DELAYS = tuple(float(delay) for delay in os.environ.get("TEST_DELAYS", "1,2").split(","))


@handler(topic("orders"), retry_delays=DELAYS, batch=BATCH)
def charge(order: Any, message: Message) -> None:
    """`{"fail": n}` fails so often; `{"later": s}` asks once for another time; `{"dead": true}` dies;
    `{"dead": "lost"}` does so where a run of it was lost, `{"dead": "first"}` where none was; `{"publish": t}` sends.
    """
    said = order if isinstance(order, dict) else {}
    note("charge", message, order, "begun")
    time.sleep(float(said.get("sleep", 0)))
    if said.get("dead") is True or (said.get("dead") == "lost" and message.attempts.lost):
        raise DeadLetter("no such card")
    if said.get("dead") == "first" and not message.attempts.lost:
        raise DeadLetter("no such card")
    if "later" in said and message.attempt == 1:
        raise RetryLater(said["later"])
    if message.attempts.failed < said.get("fail", 0):
        raise ConnectionError("no line")
    if "publish" in said:
        message.publish(topic(said["publish"]), order)
    note("charge", message, order)
