"""What is queued can be given up for good: no worker runs it, no bridge hands it off again, and the audit says so."""

import pytest

from tests.delivery_checks import audit, choose, command, json_in
from tests.processes import Stack, eventually


@pytest.mark.slow
# A dozen commands, each of which takes seconds on a busy machine.
@pytest.mark.timeout(300)
def test_what_is_discarded_runs_in_no_worker_also_after_the_queue_was_purged(stack: Stack):
    choose(
        stack,
        {"orders": {"commit": "completion"}, "keyed": {"commit": "completion", "order": "key"}},
        kafka_stuck_after=2,
    )
    stack.make_topics("orders", "many")
    stack.make_topics("found", "limited", "slow", "odd", "keyed", "line", "blocking", "steps", "payments")
    stack.bridge()
    stack.produce("orders", *[f"{number}" for number in range(20)])
    stack.produce("many", "1")
    stack.produce("keyed", "1")
    eventually(lambda: stack.waiting() == 22, 60, "all are queued")

    refused = command(stack, "discard", stack.topic("orders"), "--handler", "nobody", "--yes", code=1)
    assert "is no handler of" in refused
    assert "add --yes" in command(stack, "discard", stack.topic("orders"), code=2)
    printed = command(stack, "discard", stack.topic("orders"), "--yes", "--json")
    assert "orders: 20 queued" in printed
    assert json_in(printed) == {"orders": 20}
    assert "orders: 0 queued" in command(stack, "discard", stack.topic("orders"), "--yes")

    keyed = stack.topic("keyed")
    refused = command(stack, "discard", keyed, "--yes", code=1)
    assert "is ordered by key and is not halted" in refused
    assert "Nothing was discarded." in refused
    assert audit(stack, "keyed")["handed"] == 1
    command(stack, "halt", keyed, "--why", "its deliveries are given up")
    assert json_in(command(stack, "discard", keyed, "--yes", "--json")) == {"keyed": 1}
    command(stack, "resume", keyed, "--why", "nothing of it runs")
    # What is discarded is not looked for; the other topic's delivery is, and comes back.
    stack.redis().delete(stack.queue)
    eventually(lambda: stack.waiting() == 1, 60, "the stuck are found")

    stack.produce("keyed", "2")
    eventually(lambda: audit(stack, "keyed")["handed"] >= 1, 30, "the next is queued")
    assert "is not halted" in command(stack, "discard", keyed, "--yes", "--anyway")
    worker = stack.worker()
    stack.produce("orders", "21")
    eventually(lambda: stack.done("many") and stack.done("orders"), 60, "the rest is handled")
    eventually(lambda: stack.committed("orders") == 21, 30, "what is discarded is settled")
    found = audit(stack)
    assert (found["discarded"], found["done"], found["handed"]) == (20, 1, 0)
    assert len(stack.done("orders")) == 1
    worker.says("ended and its handler did not run: its delivery was discarded")
