"""The handlers of the bad input: one takes bytes, one JSON, and one a model; this one parks what fails."""

from typing import Any

from pydantic import BaseModel

from tasks import DeadLetter, Message, handler
from tests.handlers.book import enter
from tests.handlers.notes import topic


class Order(BaseModel):
    """What the handler `typed` wants."""

    id: int
    names: list[str] = []


def act(name: str, message: Message) -> None:
    """Done; but of fifty records one fails once, and one dies."""
    if message.offset % 50 == 7 and message.attempt == 1:
        raise ConnectionError("as it must")
    if message.offset % 50 == 9:
        raise DeadLetter("as it must")
    enter(name, message.coordinates, message, "done")


@handler(topic("bytes"), codec=bytes, batch=200, retry_delays=(0.3, 0.3))
def raw(value: bytes, message: Message) -> None:
    act("raw", message)


@handler(topic("json"), batch=50, retry_delays=(0.3, 0.3))
def anything(value: Any, message: Message) -> None:
    act("anything", message)


@handler(topic("json"), retry_delays=(1, 1))
def typed(value: Order, message: Message) -> None:
    act("typed", message)
