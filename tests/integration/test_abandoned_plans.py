"""A plan that was killed (kill -9) while it sent, and is gone on with when nobody can tell any more what it sent."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from bridge.deadletters.model.bulk_plan import PlanItemState, PlanOptions
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from tests.delivery_checks import delete_topic
from tests.desk_of_stack import desk, record, replay
from tests.integration.test_redrives_at_once import dead_once, redrives, runs
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.integration.test_replay_killed import apply_killed
from tests.processes import Stack, eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("desk_url")]


def forget(stack: Stack, topic: str, how: str) -> None:
    """Have Kafka drop all that a topic has: by retention, or with the topic, which is made again."""
    if how == "dropped":
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        (deleted,) = admin.delete_records([TopicPartition(stack.topic(topic), 0, -1)]).values()
        deleted.result(30)
        return
    delete_topic(stack, topic)
    eventually(lambda: not stack.has_topic(topic), 30)
    stack.make_topics(topic)


def lease_over(here: object) -> None:
    """As if the lease of who died had run out."""
    with here.database.writing() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("UPDATE plans SET leased_until = 0 WHERE leased_until IS NOT NULL")


@pytest.mark.parametrize("how", ["dropped", "made again"])
def test_what_a_redrive_may_have_sent_is_not_sent_again(stack: Stack, how: str):
    start(stack, "line")
    stack.produce("line", 1)
    eventually(lambda: len(stack.done("line")) == 1, 40)
    with desk(stack, "line", line=COMPLETION) as here:
        plan = here.redrive.plan(RedriveRequest(stack.topic("line"), "earliest"), PlanOptions(again=True), "ann")
        apply_killed(stack, plan.id, "published")
        eventually(lambda: len(stack.done("line")) == 2, 40, "it runs once more")
        forget(stack, "line.replay", how)
        lease_over(here)
        plan = here.plans.apply(plan.id, "bob")
        assert plan.outcomes == {"unknown": 1}
        (left,) = here.progress.each(plan.id, [PlanItemState.UNKNOWN], 0, 10)
        assert "whether it was sent" in left.why or "may have been sent" in left.why
    assert len(stack.done("line")) == 2


def test_a_letter_that_may_be_on_its_way_is_neither_opened_nor_sent_again(stack: Stack, tmp_path: Path):
    go = tmp_path / "go"
    go.touch()
    dead_once(stack, tmp_path / "mended", hold=str(go))
    go.unlink()
    with desk(stack, "blocking", blocking=COMPLETION) as here:
        record(stack, here, "blocking", 1)
        plan = replay(here)
        apply_killed(stack, plan.id, "published")
        eventually(lambda: runs(stack, "begun") == 2, 40, "it runs once more")
        forget(stack, "blocking.replay", "dropped")
        lease_over(here)
        assert here.plans.apply(plan.id, "bob").outcomes == {"unknown": 1}
        assert statuses(here) == {"replaying": 1}
        assert stack.records("blocking.replay") == []
    go.touch()
    eventually(lambda: runs(stack, "done") == 1, 40)


def test_what_one_left_claimed_is_no_others_and_goes_out_once(stack: Stack, tmp_path: Path):
    dead_once(stack, tmp_path / "mended")
    with desk(stack, "blocking", blocking=COMPLETION) as here:
        one, other = redrives(here, stack, again=True), redrives(here, stack, again=True)
        apply_killed(stack, one.id, "claimed")
        assert here.plans.apply(other.id, "bob").outcomes == {"skipped": 1}
        lease_over(here)
        assert here.plans.wait(here.plans.apply(one.id, "ann").id).outcomes == {"done": 1}
    assert runs(stack, "done") == 1
    assert len(stack.records("blocking.replay")) == 1
