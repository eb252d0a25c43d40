"""Bulk handlers: each does what the records of its list say."""

import os
import signal
from functools import cache
from typing import Any

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from tasks import DeadLetter, Messages, handler
from tests.handlers.notes import note, topic


@cache
def _engine() -> Engine:
    return create_engine(os.environ["TEST_DATABASE"], connect_args={"timeout": 30})


def _begin(name: str, orders: list[Any], messages: Messages) -> None:
    for order, message in zip(orders, messages, strict=True):
        note(name, message, order, f"of {len(orders)}")


@handler(topic("rows"), name="rows", bulk=200, retry_delays=(0.3,) * 3)
def rows(orders: list[dict[str, Any]], messages: Messages) -> None:
    """Insert all in one transaction. `{"dead": true}` is blamed; `{"later": n}` is put off n times; `{"bad": n}` makes
    the transaction fail n times, without blame; `{"kill": true}` kills the process after the commit.
    """
    _begin("rows", orders, messages)
    for number, order in enumerate(orders):
        if order.get("dead"):
            messages.fail(number, DeadLetter("as it says"))
        if messages[number].attempts.postponed < order.get("later", 0):
            messages.later(number, 1)
    kept = [number for number in range(len(orders)) if number not in messages.blamed]
    with Session(_engine()) as session, session.begin():
        messages.settle_with(session)
        if kept:
            session.execute(
                text("INSERT INTO payments VALUES (:id)"), [{"id": orders[number]["id"]} for number in kept]
            )
        if any(messages[number].attempt <= orders[number].get("bad", 0) for number in kept):
            raise ConnectionError("before the commit")
    if any(order.get("kill") for order in orders):
        os.kill(os.getpid(), signal.SIGKILL)
    for number in kept:
        note("rows", messages[number], orders[number])


@handler(topic("lanes"), name="lanes", bulk=50, retry_delays=(0.3,) * 3)
def lanes(orders: list[dict[str, Any]], messages: Messages) -> None:
    """`{"bad": n}` makes the call fail n times, without blame."""
    _begin("lanes", orders, messages)
    if any(message.attempt <= order.get("bad", 0) for order, message in zip(orders, messages, strict=True)):
        raise ConnectionError("as it says")
    for order, message in zip(orders, messages, strict=True):
        note("lanes", message, order)


@handler(topic("stuck"), name="stuck", bulk=50, time_limit=2, retry_delays=(0.3,) * 3)
def stuck(orders: list[dict[str, Any]], messages: Messages) -> None:
    """`{"kill": true}` kills the process, whoever is with it."""
    _begin("stuck", orders, messages)
    if any(order.get("kill") for order in orders):
        os.kill(os.getpid(), signal.SIGKILL)
    for order, message in zip(orders, messages, strict=True):
        note("stuck", message, order)
