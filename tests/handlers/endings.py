"""Every way in which a delivery can end."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from celery import Task
from celery.exceptions import Ignore, Reject
from pydantic import BaseModel

from tasks import Attempts, DeadLetter, Message, RetryLater, StopConsuming, handler
from tests.handlers.notes import note, topic


class CardDeclined(Exception):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        self.lock = threading.Lock()
        super().__init__(f"{first} {second}")


class Order(BaseModel):
    id: int
    amount: float


@handler(topic("orders"), max_retries=2, retry_backoff=1, retry_jitter=False, dead_letter_for=(CardDeclined,))
def act(order: Any, message: Message) -> None:  # noqa: C901  (a table in the form of a match)
    """Does what `order["end"]` says."""
    end = order["end"] if isinstance(order, dict) else "done"
    note("act", message, order, "begun")
    match end:
        case "transient":
            if message.attempt <= order["times"]:
                raise ConnectionError("for a while")
        case "exhausted":
            raise ConnectionError("always")
        case "permanent":
            raise DeadLetter("no such card")
        case "declined":
            raise CardDeclined("declined")
        case "later":
            if message.attempt <= 4:
                raise RetryLater(0.1, "busy")
        case "unprintable":
            raise Unprintable
        case "unpicklable":
            raise Unpicklable("two", "parts")
        case "huge":
            raise ValueError("x" * 3_000_000)
        case "foreign":
            raise ValueError("größe 😀 \udc80")
        case "exit":
            sys.exit(3)
        case "memory":
            raise MemoryError("too much")
        case "ignored":
            raise Ignore
        case "rejected":
            raise Reject("by hand", requeue=False)
        case "killed" if _first(message):
            os.kill(os.getpid(), signal.SIGKILL)
    note("act", message, order)


def _first(message: Message) -> bool:
    """Whether nothing ran for this message before: a killed run leaves no count in the message."""
    mark = Path(os.environ["TEST_RUNS"] + "." + message.coordinates)
    if mark.exists():
        return False
    mark.touch()
    return True


@handler(topic("slow"), soft_time_limit=1, max_retries=0)
def slow(order: Any, message: Message) -> None:
    note("slow", message, order, "begun")
    time.sleep(60)


@handler(topic("models"))
def validated(order: Order | None, message: Message) -> None:
    note("validated", message, order and order.model_dump())


@handler(topic("raw"), codec=bytes)
def raw(value: bytes, message: Message) -> None:
    note("raw", message, value.hex())


@handler(topic("texts"), codec=str, queue=topic("texts.queue"))
def text(value: str, message: Message) -> None:
    note("text", message, value)


@handler(topic("async"), soft_time_limit=1, max_retries=1, retry_backoff=1, retry_jitter=False)
async def awaited(order: Any, message: Message) -> None:
    note("awaited", message, order, "begun")
    await asyncio.sleep(60 if order == "slow" else 0.01)
    note("awaited", message, order, "done")


@handler(topic("budget"), retry_delays=(0.4,) * 20, give_up_after=1)
def budget(order: Any, message: Message) -> None:
    note("budget", message, order, "begun")
    raise ConnectionError("always")


def asked(message: Message, error: Exception, attempts: Attempts) -> float | DeadLetter | None:
    if message.key != b"\x00key\xff" or not isinstance(error, ConnectionError):
        return DeadLetter("of another kind")
    match json.loads(message.value or b"{}")["end"]:
        case "gone":
            return DeadLetter("gone for good")
        case "soon":
            return 0.4 if attempts.failed < 1 else None
        case "broken":
            raise KeyError("no such thing")
        case "hangs":
            time.sleep(60)
    return None


@handler(topic("asked"), retry_when=asked, retry_delays=(0.1, 0.1), soft_time_limit=1)
def asking(order: Any, message: Message) -> None:
    note("asking", message, order, "begun")
    raise ConnectionError("always")


@handler(topic("delays"), retry_delays=(0.3, 0.9))
def delays(order: Any, message: Message) -> None:
    note("delays", message, order, "begun")
    raise ConnectionError("always")


@handler(topic("pair"))
def first_of_two(order: Any, message: Message) -> None:
    note("first_of_two", message, order)


@handler(topic("pair"), retry_delays=(0.2,))
def second_of_two(order: Any, message: Message) -> None:
    if message.attempt == 1:
        note("second_of_two", message, order, "begun")
        raise ConnectionError("once")
    note("second_of_two", message, order)


@handler(topic("stop"))
def stop(order: Any, message: Message) -> None:
    note("stop", message, order, "begun")
    raise StopConsuming("the bank's keys are gone")


@handler(topic("bound"), bind=True)
def bound(self: "Task[Any, Any]", order: Any, message: Message) -> None:
    note("bound", message, order, "begun")
    raise self.retry(countdown=0.2, max_retries=1, exc=ConnectionError("by hand"))


def _deep(depth: int) -> None:
    if depth == 0:
        raise ValueError("far down " * 200)
    _deep(depth - 1)


@handler(topic("large"), max_retries=0)
def large(value: Any, message: Message) -> None:
    note("large", message, "", "begun")
    _deep(3)
