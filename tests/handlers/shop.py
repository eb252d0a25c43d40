"""The handlers of the acceptance tests: two on one topic, as a user would write them."""

import os
import signal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tasks import DeadLetter, Message, RetryLater, handler
from tests.handlers.notes import note, topic


class CardDeclined(Exception):
    pass


class Order(BaseModel):
    id: int
    end: str = "done"


@handler(topic("orders"), retry_delays=(0.1, 0.3), dead_letter_for=(CardDeclined,))
def charge(order: Order | None, message: Message) -> None:
    """Ends as the order says."""
    match order and order.end:
        case "transient" if message.attempt < 3:
            raise ConnectionError("for a while")
        case "later" if message.attempt < 2:
            raise RetryLater(0.2)
        case "exhausted":
            raise ConnectionError("always")
        case "declined":
            raise CardDeclined("größe")
        case "permanent":
            raise DeadLetter("no such card")
        case "killed" if _first(message):
            os.kill(os.getpid(), signal.SIGKILL)
    note("charge", message, order and order.id)


@handler(topic("orders"), codec=bytes, retry_delays=(0.1,))
def archive(value: bytes | None, message: Message) -> None:
    """Keeps everything; stumbles over every hundredth record once."""
    if message.offset % 100 == 0 and message.attempt == 1:
        raise OSError("disk is busy")
    note("archive", message, None if value is None else len(value))


def _first(message: Message) -> bool:
    mark = Path(os.environ["TEST_RUNS"] + "." + message.coordinates)
    if mark.exists():
        return False
    mark.touch()
    return True


@handler(topic("stream"))
def stream(value: Any, message: Message) -> Any:
    """Done, quickly."""
    note("stream", message, value)
