"""A user's package under `mypy --strict`: what is right passes, and every mistake is found."""

import re
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, Process

#: A comment names the error that mypy must find in its line; in no other may it find one.
PACKAGE = """
from typing import Any

from pydantic import BaseModel

from tasks import DeadLetter, HandlerTask, Message, RetryLater, handler
from tasks.testing import outcome


class Order(BaseModel):
    id: int


@handler("orders", autoretry_for=(ConnectionError,), max_retries=5, retry_backoff=1, retry_backoff_max=60)
def charge(order: Order) -> int:
    if order.id < 0:
        raise DeadLetter("no such order")
    return order.id


@handler("orders", "returns", retry_delays=(300, 1800), dead_letter_for=KeyError, queue="mail", aliases=("old",))
def notify(order: dict[str, int], message: Message) -> None:
    raise RetryLater(delay=30, why=message.coordinates)


@handler("orders", bind=True, max_retries=None)
def bound(self: HandlerTask, order: Order) -> str:
    raise self.retry(countdown=3)


@handler("orders", codec=bytes, batch=200, rate_limit="5/s", name="raw")
async def raw(value: bytes) -> bytes:
    return value


async def right(message: Message) -> None:
    number: int = charge(Order(id=1))
    notify({"id": number}, message)
    text: str = bound(Order(id=1))
    value: bytes = await raw(b"1")
    charge.delay(Order(id=1))
    seconds: float | None = outcome(charge, {"id": 1}, attempt=3).delay
    print(text, value, seconds, charge.name)


async def wrong(message: Message) -> None:
    charge("text")  # error: arg-type
    charge()  # error: call-arg
    charge(Order(id=1), message)  # error: call-arg
    text: str = charge(Order(id=1))  # error: assignment
    notify({"id": 1})  # error: call-arg
    bound(bound, Order(id=1))  # error: call-arg, arg-type
    value: bytes = raw(b"1")  # error: assignment
    RetryLater("soon")  # error: arg-type
    outcome(charge)  # error: call-arg
    outcome(wrong, 1)  # error: arg-type


@handler("orders", retry_backof=1)  # error: call-overload, untyped-decorator
def misspelt(order: Any) -> None: ...


@handler("orders", max_retries="5")  # error: call-overload, untyped-decorator
def a_text(order: Any) -> None: ...


@handler("orders", dead_letter_for=ValueError("x"))  # error: call-overload, untyped-decorator
def an_instance(order: Any) -> None: ...


@handler(5)  # error: call-overload, untyped-decorator
def a_number(order: Any) -> None: ...
"""


@pytest.mark.slow
def test_mypy_finds_every_mistake_of_a_users_package_and_nothing_else(tmp_path: Path):
    (tmp_path / "shop.py").write_text(PACKAGE)
    # Kept between runs: the first reads the libraries for half a minute.
    cache = ROOT / ".mypy_cache" / "users"
    options = ("--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary", "--no-pretty")
    command = (sys.executable, "-m", "mypy", *options, "shop.py")
    run = Process("mypy", command, {"PATH": "", "MYPYPATH": str(ROOT)}, tmp_path, tmp_path)
    run.ends(240)
    found: dict[int, set[str]] = {}
    for line, kind in re.findall(r"^shop\.py:(\d+): error: .*\[([a-z-]+)\]$", run.text, re.MULTILINE):
        found.setdefault(int(line), set()).add(kind)
    wanted = {
        number: set(line.partition("# error: ")[2].split(", "))
        for number, line in enumerate(PACKAGE.splitlines(), 1)
        if "# error: " in line
    }
    assert found == wanted, run.text
