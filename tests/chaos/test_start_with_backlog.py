"""Starting far behind."""

import pytest

from bridge.ledger import Fate, Mark
from tests.delivery_checks import choose, ledger
from tests.processes import Stack, eventually

pytestmark = pytest.mark.chaos


def test_a_million_settled_offsets_are_skipped_at_the_start_within_seconds(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders")
    for _ in range(1_000_000):
        try:
            stack.producer.produce(stack.topic("orders"), b"1")
        except BufferError:
            stack.producer.flush(30)
            stack.producer.produce(stack.topic("orders"), b"1")
    assert stack.producer.flush(60) == 0
    with ledger(stack, "orders") as (fates, account):
        fates.write([Mark(account, range(1_000_000), Fate.DONE)])
    started = stack.bridge()
    started.says("offsets 0 to 999999 are settled: skipped")
    (placed,) = stack.produce("orders", "new")
    eventually(lambda: stack.queued_ids() == [f"{placed}:orders"], 10)
    eventually(lambda: stack.committed("orders") >= 1_000_000, 10)
