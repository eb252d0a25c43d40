"""Order, when what runs it is killed."""

import json

import pytest

from tests.delivery_checks import all_settled, choose, in_order, twice
from tests.processes import Stack, eventually

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("batch", [20, "auto"])
def test_order_holds_when_worker_and_bridge_are_killed_and_partitions_move(stack: Stack, batch: int | str):
    choose(stack, {"orders": {"commit": "completion", "order": "key"}})
    stack.environ["TEST_BATCH"] = json.dumps(batch)
    stack.make_topics("orders", partitions=4)
    worker, first = stack.worker(wait=False), stack.bridge()
    for n in range(600):
        value = {"fail": 1} if n % 61 == 7 else {"sleep": 0.01}
        stack.producer.produce(stack.topic("orders"), json.dumps(value).encode(), key=b"%d" % (n % 30))
    assert stack.producer.flush(30) == 0
    eventually(lambda: len(stack.done()) > 60, 30)
    worker.kill()
    stack.worker()
    stack.bridge()
    eventually(lambda: len(stack.done()) > 200, 30)
    first.kill()
    all_settled(stack, "orders", done=600)
    in_order(stack)
    # What the two processes had done in the last milliseconds before the kill.
    assert len(twice(stack)) <= 10
