"""Handlers of one topic, each with another size of batch: a message says which of them it kills, and how."""

import ctypes
import os
import signal
import time
from typing import Any

from billiard.process import current_process

from tasks import Message, RetryLater, handler
from tests.handlers.notes import note, topic


def _kill_worker() -> None:
    # Long enough for its main process to tell that it has begun.
    time.sleep(0.3)
    in_a_child = "Pool" in current_process().name
    os.kill(os.getppid() if in_a_child else os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _handle(name: str, order: Any, message: Message) -> None:
    note(name, message, order, "begun")
    time.sleep(float(order.get("seconds", 0) + order.get("takes", {}).get(name, 0)))
    if order.get("kills_all") == name:
        _kill_worker()
    if order.get("kills") == name:
        match order.get("by"):
            case "segfault":
                ctypes.string_at(0)
            case "exit":
                os._exit(7)
            case "later" if message.attempts.postponed == 0 and message.attempts.lost == 1:
                raise RetryLater(delay=1)
        os.kill(os.getpid(), signal.SIGKILL)
    note(name, message, order)


@handler(topic("orders"))
def auto(order: Any, message: Message) -> None:
    _handle("auto", order, message)


@handler(topic("orders"), batch=200)
def many(order: Any, message: Message) -> None:
    _handle("many", order, message)


@handler(topic("orders"), batch=1)
def one(order: Any, message: Message) -> None:
    _handle("one", order, message)
