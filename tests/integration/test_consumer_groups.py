"""A delivery belongs to the group that handed it off, whatever the environment of the worker that runs it says."""

import pytest

from tests.delivery_checks import choose
from tests.processes import Stack, eventually


@pytest.mark.slow
def test_a_worker_of_another_environment_writes_for_the_group_that_handed_off(stack: Stack):
    group = stack.environ["BRIDGE_GROUP"]
    choose(
        stack,
        {"orders": {"commit": "completion"}},
        kafka_dead_letter_topic="{topic}.{group}.dead",
        task_default_queue=f"{group}.q",
    )
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1", BRIDGE_GROUP=f"{group}.other")
    (placed,) = stack.produce("orders", {"dead": "no such card"})
    (record,) = eventually(lambda: stack.records(f"orders.{group}.dead"), 30)
    assert dict(record.headers() or ())["bridge_group"] == group.encode()
    assert not stack.has_topic(f"orders.{group}.other.dead")
    eventually(lambda: worker.metric("worker_dead_lettered_total", group=group) == 1, 10)
    assert [run.coordinates for run in stack.runs()] == [placed]
    eventually(lambda: stack.committed("orders") == 1, 20)
