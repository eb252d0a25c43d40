"""More bridges share the partitions, more workers the queue."""

import json

import pytest

from tests.delivery_checks import all_settled, choose, in_order, twice
from tests.processes import Stack, eventually


@pytest.mark.slow
def test_bridges_that_come_and_go_hand_each_delivery_out_once_and_in_order(stack: Stack):
    choose(stack, {"orders": {"commit": "completion", "order": "key"}})
    stack.environ["TEST_BATCH"] = "10"
    stack.make_topics("orders", partitions=12)
    stack.worker(wait=False)
    first = stack.bridge()
    for n in range(600):
        value = {"fail": 1} if n % 61 == 7 else {"sleep": 0.01}
        stack.producer.produce(stack.topic("orders"), json.dumps(value).encode(), key=b"%d" % (n % 40))
    assert stack.producer.flush(30) == 0
    second = stack.bridge()
    eventually(lambda: "revoked: " in first.text and "assigned: " in second.text, 20)
    eventually(lambda: len(stack.done()) > 150, 30)
    assert first.terminate() == 0
    all_settled(stack, "orders", done=600)
    in_order(stack)
    # Nobody was killed: nothing ran twice.
    assert twice(stack) == {}
