"""A redrive of a sequence; and one while Redis is wiped."""

from pathlib import Path

import pytest

from bridge.deadletters.model.bulk_plan import PlanItemState, PlanOptions
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from tests.desk_of_stack import desk
from tests.integration.test_replay import COMPLETION, start
from tests.processes import Stack, eventually

STEPS = tuple(f"tests.handlers.fates.{name}" for name in ("first", "second", "third"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("desk_url")]


def test_of_a_sequence_the_first_is_sent_and_those_after_it_follow_message_by_message(stack: Stack):
    chosen = {**COMPLETION, "order": "key", "sequence": STEPS}
    start(stack, "steps", steps=chosen)
    places = stack.produce("steps", 1, 2, key=b"k")
    eventually(lambda: stack.done("third") == places, 40)
    with desk(stack, *STEPS, steps=chosen) as here:
        asked = RedriveRequest(stack.topic("steps"), "earliest")
        assert here.redrive.plan(asked, PlanOptions(), "ann").counts.letters == 0
        plan = here.redrive.plan(asked, PlanOptions(again=True, canary=True), "ann")
        assert here.plans.wait(here.plans.apply(plan.id, "ann").id).outcomes == {"done": 2}
    eventually(lambda: stack.done("third") == places * 2, 40)
    again = [(run.coordinates, run.handler) for run in stack.runs() if run.outcome == "done"][6:]
    assert again == [(place, handler) for place in places for handler in ("first", "second", "third")]


@pytest.mark.parametrize("commit", ["completion", "handoff"])
def test_while_redis_is_wiped_what_was_sent_runs_or_is_said_to_be_unknown(stack: Stack, tmp_path: Path, commit: str):
    chosen, held = {"commit": commit}, tmp_path / "held"
    start(stack, "many", settings={"kafka_stuck_after": 5}, many=chosen)
    held.touch()
    places = stack.produce("many", *({"hold": str(held), "id": number} for number in range(10)))
    eventually(lambda: set(stack.done("many")) == set(places), 40)
    with desk(stack, "many", many=chosen) as here:
        here.settings.file.__dict__["kafka_stuck_after"] = 5.0
        held.unlink()
        plan = here.redrive.plan(RedriveRequest(stack.topic("many"), "earliest"), PlanOptions(again=True), "ann")
        plan = here.plans.apply(plan.id, "ann")
        eventually(lambda: [run for run in stack.runs("many") if run.outcome == "begun"][10:], 30, "one is begun")
        with stack.redis() as client:
            client.flushdb()
        held.touch()
        plan = here.plans.wait(plan.id)
        assert plan.count(PlanItemState.DONE, PlanItemState.UNKNOWN) == 10
        if commit == "completion":
            assert plan.outcomes == {"done": 10}
            assert all(stack.done("many").count(place) >= 2 for place in places)
