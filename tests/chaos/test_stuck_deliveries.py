"""What was handed off and is nowhere."""

import pytest

from tests.delivery_checks import all_settled, choose
from tests.processes import Stack, eventually

pytestmark = pytest.mark.chaos


def test_a_delivery_whose_queue_entry_was_deleted_comes_again_after_a_time(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}}, kafka_stuck_after=1)
    stack.make_topics("orders")
    bridge = stack.bridge()
    placed = stack.produce("orders", *range(5))
    eventually(lambda: stack.waiting() == 5, 20)
    with stack.redis() as client:
        client.lpop(stack.queue, 3)
    bridge.says("in no task now: they are handed off again", 60)
    stack.worker()
    all_settled(stack, "orders", done=5)
    assert sorted(stack.done()) == sorted(placed)
    assert bridge.metric("bridge_stuck_deliveries_total") == 3
