"""The proof: `bridge audit`, `bridge status`, the gauges."""

import pytest

from bridge.ledger import Fate, Mark
from tests.processes import Stack, eventually
from tests.promises import AUDITED, all_settled, audit, choose, command, json_of, ledger

NAMES = {
    "handler",
    "partition",
    "first",
    "end",
    "committed",
    "joined",
    *AUDITED,
    "gaps",
    "unaccounted_at",
    "oldest",
    "letters_missing",
}


def test_what_is_not_read_yet_is_open_and_no_fault_and_a_missing_topic_counts_as_empty(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "keyed")
    stack.produce("orders", *range(7))
    found = audit(stack)
    assert (found["open"], found["unaccounted"], found["clean"]) == (7, 0, True)
    assert audit(stack, "keyed")["open"] == 0
    assert json_of(stack, "audit", stack.topic("line"))["lines"] == []
    assert "no handler names topic" in command(stack, "audit", "nobody", code=1)


@pytest.mark.slow
def test_the_report_names_each_fate_and_exits_1_if_anything_is_unaccounted_for(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", partitions=2)
    bridge, worker = stack.bridge(), stack.worker()
    stack.produce("orders", *range(20), {"dead": True}, partition=0)
    all_settled(stack, "orders", done=20, dead=1)
    worker.terminate()
    stack.produce("orders", *range(3), partition=1)
    eventually(lambda: stack.waiting() == 3, 20)
    found = audit(stack)
    assert {name: found[name] for name in AUDITED} == {
        "done": 20,
        "handed": 3,
        "parked": 0,
        "dead": 1,
        "discarded": 0,
        "open": 0,
        "unaccounted": 0,
    }
    assert found["topic"] == stack.topic("orders")
    (zero, one) = found["lines"]
    assert set(zero) == NAMES
    assert (zero["committed"], zero["end"], zero["oldest"]) == (21, 21, [])
    assert (one["partition"], one["handed"], one["oldest"]) == (1, 3, [0, 1, 2])
    printed = command(stack, "audit", stack.topic("orders"))
    assert "nothing is unaccounted for" in printed
    topic = stack.topic("orders")
    with ledger(stack, "orders") as (fates, account):
        for offset in (4, 5, 9):
            fates.forget(account, offset, offset)
    found = audit(stack, code=1)
    assert (found["unaccounted"], found["clean"]) == (3, False)
    assert found["lines"][0]["unaccounted_at"] == [4, 5, 9]
    assert "unaccounted for: 3" in command(stack, "audit", topic, code=1)

    def shown(fate: str, partition: str) -> float:
        return bridge.metric("bridge_fates", topic=topic, partition=partition, handler="orders", fate=fate)

    eventually(lambda: bridge.metric("bridge_unaccounted", topic=topic, handler="orders") == 3, 40)
    assert [shown("done", "0"), shown("open", "0"), shown("dead", "0"), shown("handed", "1")] == [17, 3, 1, 3]


def test_a_dead_delivery_without_a_dead_letter_is_a_fault(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "orders.dlq")
    stack.produce("orders", *range(5))
    with ledger(stack, "orders") as (fates, account):
        fates.write([Mark(account, range(5), Fate.DEAD)])
    found = audit(stack, code=1)
    assert found["lines"][0]["letters_missing"] == [0, 1, 2, 3, 4]
    assert "without a dead letter" in command(stack, "audit", stack.topic("orders"), code=1)


def test_the_status_tells_topics_and_bridges_and_that_nothing_is_halted(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", partitions=2)
    first = json_of(stack, "status")
    assert first["bridges"] == {}
    stack.produce("orders", *range(5), partition=1)
    bridge = stack.bridge()
    eventually(lambda: stack.waiting() == 5, 20)
    eventually(lambda: json_of(stack, "status")["bridges"], 20)
    found = json_of(stack, "status")
    topic = stack.topic("orders")
    assert found["group"] == stack.environ["BRIDGE_GROUP"]
    assert found["halted"] == {}
    at = found["topics"][topic]["1"]
    assert (at["committed"] or 0, at["end"], at["lag"]) == (0, 5, 5)
    (state,) = found["bridges"].values()
    assert [f"{topic}-0", f"{topic}-1"] == [place for place in state["assigned"] if place.startswith(topic)]
    assert state["obstacles"] == []
    assert bridge.terminate() == 0
    assert json_of(stack, "status")["bridges"] == {}
