"""What is done is not done again, whatever hands it out."""

import json
import sqlite3

import pytest
from celery import Celery

from bridge.formats.celery_header import to_header
from bridge.formats.delivery import Batch, Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.ledger import Fate
from tests.delivery_checks import all_settled, choose, command, ledger, twice
from tests.processes import Stack, eventually


def booked(stack: Stack) -> list[int]:
    """What lies in the user's own database."""
    connection = sqlite3.connect(stack.environ["TEST_DATABASE"].removeprefix("sqlite:///"), timeout=30)
    try:
        return [number for (number,) in connection.execute("SELECT id FROM payments ORDER BY id")]
    finally:
        connection.close()


def test_work_in_the_users_database_and_its_mark_commit_together(calm: Stack):
    calm.produce(
        "payments",
        {"id": 1},
        {"id": 2, "kill": True},
        {"id": 3, "fail": 1},
        {"id": 4, "roll_back": 2},
        {"id": 5, "roll_back": 9},
    )
    all_settled(calm, "payments", done=4, dead=1)
    # 2: killed between the commit and the ledger's mark; 3: failed in between; 4: what was rolled back did not count.
    assert booked(calm) == [1, 2, 3, 4]
    (letter,) = calm.dead_letters("payments")
    assert json.loads(letter.record.value() or b"")["id"] == 5


@pytest.mark.slow
def test_a_reset_runs_nothing_again_unless_asked_to(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", partitions=2)
    worker, bridge = stack.worker(wait=False), stack.bridge()
    stack.produce("orders", *range(40), {"dead": True})
    all_settled(stack, "orders", done=40, dead=1)
    topic = stack.topic("orders")
    assert "stop all of them" in command(stack, "reset", topic, "--to", "earliest", code=1)
    bridge.terminate()
    moved = command(stack, "reset", topic, "--to", "earliest")
    assert f"{topic}-0: " in moved
    assert "→ 0" in moved
    assert stack.committed("orders") == 0
    bridge = stack.bridge()
    bridge.says("are settled: skipped")
    all_settled(stack, "orders", done=40, dead=1)
    assert len(stack.done()) == 40
    bridge.terminate()
    command(stack, "reset", topic, "--to", "earliest", "--again")
    stack.bridge()
    eventually(lambda: len(stack.done()) == 80, 30, "all ran again")
    eventually(lambda: len(stack.dead_letters("orders")) == 2, 30)
    assert set(twice(stack).values()) == {2}
    assert worker.exit_code is None


def test_what_is_pushed_into_the_queue_twice_runs_once(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders")
    stack.bridge()
    stack.produce("orders", *range(10))
    eventually(lambda: stack.waiting() == 10, 20)
    with stack.redis() as client:
        client.rpush(stack.queue, *client.lrange(stack.queue, 0, -1))
    assert stack.waiting() == 20
    # One after another: of two that run at the same time neither is settled.
    worker = stack.worker("-c", "1")
    eventually(lambda: worker.count("is settled already: not run again") == 10, 60)
    assert len(stack.done()) == 10
    assert twice(stack) == {}


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["expired", "poison", "unknown_task"])
def test_what_ended_and_could_not_be_marked_is_no_dead_letter_when_its_message_is_given_up(stack: Stack, reason: str):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "orders.dlq")
    stack.worker()
    with ledger(stack, "orders") as (fates, account):
        refused = Dead("exhausted", Failure("E", "m", "", 1))
        first, second, third = (
            Message(account.topic, 0, offset, value=b"{}", origin=f"c g {account.topic_id}") for offset in range(3)
        )
        carried = (
            Delivery(first, "orders", ended="done"),
            Delivery(second, "orders", dead=refused),
            Delivery(third, "orders"),
        )
        place = (fates.cluster, stack.queue, account.topic_id)
        header = to_header(Batch("orders", account.topic, 0, carried, *place))
        letter = {"task": "orders", "headers": {"kafka": header}, "queue": stack.queue, "reason": reason}
        with Celery(broker=stack.broker) as app:
            app.send_task("tasks.bury", (letter,), queue=stack.queue)
        end = Fate.DONE if reason == "poison" else Fate.DEAD
        eventually(lambda: fates.fates(account, 0, 2) == bytes([Fate.DONE, Fate.DEAD, end]))
    letters = {dead.origin[-1]: dead.ours["reason"] for dead in stack.dead_letters("orders")}
    expected = {"expired": {"2": "expired"}, "poison": {}, "unknown_task": {"2": "unknown_handler"}}[reason]
    assert letters == {"1": "exhausted", **expected}
