"""Killed (kill -9) between any two steps of a redrive: gone on with, each record runs once more, in order."""

import sys
from collections import Counter

import pytest

from bridge.deadletters.model.bulk_plan import PlanState
from bridge.errors import PlanRefused
from tests.desk_of_stack import desk
from tests.integration.test_replay import start
from tests.processes import Process, Stack, eventually

KEYED = {"commit": "completion", "order": "key"}
#: While the plan is made; and while it is applied.
MAKING = ("making", "frozen")
APPLYING = ("begun", "leased", "claiming", "claimed", "published", "noting", "noted", "done")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def redrive_killed(stack: Stack, topic: str, step: str) -> None:
    """`bridge redrive`, which dies at a step."""
    words = ("-m", "bridge", "redrive", stack.topic(topic), "--from", "earliest", "--again", "--yes", "--by", "ann")
    killed: Process = stack.start(
        "redrive", sys.executable, *words, HANDLERS="tests.handlers.plan_killed", TEST_KILL=step
    )
    assert killed.ends(90) == -9, killed.text
    assert f"kills itself: {step}" in killed.text


def test_another_process_goes_on_and_each_record_runs_once_more_in_the_order_of_its_key(stack: Stack, desk_url: str):
    start(stack, "keyed", keyed=KEYED)
    keys = {key: stack.produce("keyed", 1, 2, key=key) for key in (b"a", b"b")}
    places = [place for some in keys.values() for place in some]
    eventually(lambda: set(stack.done("keyed")) == set(places), 40)
    with desk(stack, "keyed", keyed=KEYED) as here:
        for step in MAKING:
            redrive_killed(stack, "keyed", step)
            (plan, *_) = here.plans.latest()
            assert plan.state is PlanState.MAKING, step
            with pytest.raises(PlanRefused):
                here.plans.apply(plan.id, "bob")
        for times, step in enumerate(APPLYING, 2):
            redrive_killed(stack, "keyed", step)
            # As if its lease had run out.
            with here.database.writing() as connection:
                connection.exec_driver_sql("UPDATE plans SET leased_until = 0 WHERE leased_until IS NOT NULL")
            (plan, *_) = here.plans.latest()
            if plan.state is not PlanState.DONE:
                here.plans.apply(plan.id, "bob")
            plan = here.plans.wait(plan.id)
            assert (plan.state, plan.outcomes) == (PlanState.DONE, {"done": 4}), step
            done = stack.done("keyed")
            assert Counter(done) == dict.fromkeys(places, times), step
            for some in keys.values():
                assert [place for place in done if place in some][-2:] == some, step
    assert len(stack.records("keyed.replay")) == len(places) * len(APPLYING)
