"""`bridge find`: where one record stands for each handler."""

import time
from typing import Any

import pytest

from tests.delivery_checks import command, json_in, json_of
from tests.processes import Stack, eventually

NAME = "tests.handlers.simple.work"


def of(stack: Stack, coordinates: str) -> dict[str, Any]:
    # The task of what has ended is noted within a second, and of what is just taken none is known.
    found = eventually(lambda: f if (f := json_of(stack, "find", coordinates))["deliveries"][0]["task"] else None, 20)
    assert found["record"].keys() == {"topic", "partition", "offset", "key", "timestamp"}
    (delivery,) = found["deliveries"]
    known = {"handler", "fate", "where", "since", "until", "attempts", "last_error", "task", "policy", "halted"}
    assert delivery.keys() == known | {"held_by"}
    assert delivery["attempts"].keys() == {"failed", "lost", "postponed", "replayed"}
    assert delivery["handler"] == NAME
    assert delivery["task"] == f"{coordinates}:{NAME}"
    return {**found["record"], **delivery}


@pytest.mark.slow
def test_a_record_is_found_wherever_it_lies(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    queued, done, dead = stack.produce("orders", {"id": 1}, {"id": 2}, {"dead": "no such card"}, key=b"4711")
    found = eventually(lambda: f if (f := of(stack, queued))["fate"] == "handed" else None, 20)
    assert (found["topic"], found["partition"], found["offset"]) == (stack.topic("orders"), 0, 0)
    assert found["key"] == "4711"
    assert found["where"].startswith("queue ")
    assert found["since"]
    assert abs(found["timestamp"] / 1000 - time.time()) < 600

    stack.worker(TEST_DELAY="50")
    (letter,) = stack.dead("orders", 1)
    eventually(lambda: of(stack, done)["fate"] == "done", 20)
    found = of(stack, dead)
    assert (found["fate"], found["where"]) == ("dead", f"{stack.topic('orders.dlq')}-0-{letter.record.offset()}")
    assert "no such card" in found["last_error"]
    assert found["since"]

    (failing,) = stack.produce("orders", {"fail": True}, key=b"other")
    found = eventually(lambda: f if "waits until" in (f := of(stack, failing))["where"] else None, 30)
    assert (found["fate"], found["attempts"]["failed"]) == ("handed", 1)
    assert "ConnectionError: always" in found["last_error"]
    with stack.redis() as client:
        (noted,) = client.scan_iter("ledger:*:handed:waits")
        assert client.zrange(noted, 0, -1) == [b"3"]

    printed = command(stack, "find", "--topic", stack.topic("orders"), "--key", "4711", "--json")
    by_key = json_in(printed)
    assert [each["record"]["offset"] for each in by_key] == [0, 1, 2]
    assert [each["deliveries"][0]["fate"] for each in by_key] == ["done", "done", "dead"]
    assert "done" in command(stack, "find", queued)
    assert "no such record" in command(stack, "find", f"{stack.topic('orders')}-0-99", code=1)
    assert "--key" in command(stack, "find", "nonsense", code=64)
