"""Killed (kill -9) between any two steps of a halt: the topic stays halted, nothing is lost, and it goes on at once."""

from contextlib import closing
from pathlib import Path

import pytest

from bridge.formats.group_decision import halt_key
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror
from tests.delivery_checks import choose
from tests.integration.test_halt import begun, gates_shut, here, resume
from tests.processes import Stack, eventually

#: Besides the one that most depends on.
STEPS = ("asked", "mirrored", "shut")


@pytest.mark.parametrize("who", ["child", pytest.param("worker", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", ["acknowledged", *(pytest.param(step, marks=pytest.mark.slow) for step in STEPS)])
def test_killed_between_two_steps_of_a_halt_the_topic_is_halted_and_goes_on_once_it_is_resumed(
    stack: Stack, step: str, who: str, tmp_path: Path
):
    choose(stack, {"orders": {"commit": "completion"}, "many": {"commit": "completion"}}, lost_pauses=[0.2, 0.2])
    stack.make_topics("orders", "many", "found", "limited", "slow", "odd", "keyed", "line", "blocking")
    stack.make_topics("steps", "payments")
    mended, orders = tmp_path / "mended", stack.topic("orders")
    bridge = stack.bridge()
    stack.produce("orders", {"stop": str(mended)}, *({"id": number} for number in range(1, 5)))
    worker = stack.worker("-c", "1", HANDLERS="tests.handlers.halted_killed", TEST_KILL=f"{step} {who}")
    worker.says(f"kills itself: {step}")
    if who == "worker":
        worker.kill()
        stack.worker("-c", "1")
    eventually(lambda: bridge.metric("bridge_halted", topic=orders) == 1, 20)
    eventually(lambda: list(gates_shut(stack)) == [f"{stack.environ['BRIDGE_GROUP']}:topic:{orders}"], 20)
    stack.produce("many", {"id": 0})
    eventually(lambda: stack.done("many"), 20, "other topics go on")
    with here(stack) as (_, settings, _), closing(Ledger(stack.broker, "", settings.group)) as ledger:
        assert halt_key(orders) in DecisionMirror(ledger).read().in_force()
    # What was taken before anybody knew may run; what asked to stop is not done, and is not lost.
    assert f"{orders}-0-0" not in stack.done("orders")
    mended.touch()
    ran = len(begun(stack))
    resume(stack, "orders")
    eventually(lambda: len(set(stack.done("orders"))) == 5, 30)
    assert begun(stack)[ran:], "what asked to stop runs again"
    eventually(lambda: gates_shut(stack) == {} and bridge.metric("bridge_halted", topic=orders) == 0, 10)
