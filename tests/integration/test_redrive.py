"""A range of a source topic is sent again: what needs it, once, while the group's offsets stay where they are."""

from typing import Any

import pytest

from tests.processes import Stack
from tests.promises import all_settled, audit, json_of

CHARGE = "tests.handlers.mended.charge"
NOTIFY = "tests.handlers.mended.notify"


@pytest.fixture
def shop(stack: Stack) -> Stack:
    """Ten orders, of which two have died at one of two handlers."""
    database = f"sqlite:///{stack.folder}/desk.db"
    stack.environ |= {
        "HANDLERS": "tests.handlers.mended",
        "DEADLETTERS_DATABASE_URL": database,
        "KAFKA_HANDLERS_VERSION": "1",
    }
    stack.make_topics("orders", partitions=2)
    stack.bridge()
    worker = stack.worker()
    stack.produce("orders", *[{"amount": at, "bad": at in (3, 7)} for at in range(10)])
    all_settled(stack, "orders", done=18, dead=2, letters=2)
    worker.terminate()
    stack.environ["KAFKA_HANDLERS_VERSION"] = "2"
    return stack


def counts(stack: Stack, handler: str) -> dict[int, int]:
    """By amount, how often an order was done."""
    found: dict[int, int] = {}
    for run in stack.runs(handler):
        if run.outcome == "done":
            found[run.value["amount"]] = found.get(run.value["amount"], 0) + 1
    return found


def redrive(stack: Stack, *words: str, code: int = 0) -> Any:
    return json_of(stack, "redrive", stack.topic("orders"), *words, code=code)


def test_what_is_dead_is_sent_and_what_is_done_is_left_alone(shop: Stack):
    committed = shop.committed("orders")
    shop.worker()
    found = redrive(shop, "--from", "earliest", "--yes", "--wait")
    assert found["state"] == "done"
    assert found["outcomes"] == {"done": 2}
    assert found["counts"]["stands"] == {CHARGE: {"dead": 2, "done": 8}, NOTIFY: {"done": 10}}
    assert counts(shop, "charge") == dict.fromkeys(range(10), 1)
    assert counts(shop, "notify") == dict.fromkeys(range(10), 1)
    assert shop.committed("orders") == committed
    assert audit(shop)["done"] == 20
