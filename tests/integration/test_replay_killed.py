"""Killed (kill -9) between any two steps of applying a plan: another process goes on, and each letter is sent once."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.formats.retry_record import read_retry_key
from tests.delivery_checks import audit, twice
from tests.desk_of_stack import desk, record, replay
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.processes import Process, Stack

pytestmark = [pytest.mark.usefixtures("desk_url"), pytest.mark.timeout(300)]
STEPS = ("begun", "leased", "claiming", "moving", "claimed", "published", "noting", "noted", "done")
DISCARDING = ("claimed", "told", "settling", "noted")
LETTERS = 20


def apply_killed(stack: Stack, plan_id: int, step: str) -> None:
    """`bridge deadletters plans apply`, which dies at a step."""
    words = ("-m", "bridge", "deadletters", "plans", "apply", str(plan_id), "--yes")
    killed: Process = stack.start(
        "apply", sys.executable, *words, HANDLERS="tests.handlers.plan_killed", TEST_KILL=step
    )
    assert killed.ends(40) == -9, killed.text
    assert f"kills itself: {step}" in killed.text


def gone_on_with(here: DeadLetterService, plan: BulkPlan) -> BulkPlan:
    """The plan of a process that was killed, applied by another, as if the lease had run out."""
    with here.database.writing() as connection:
        connection.exec_driver_sql("UPDATE plans SET leased_until = 0 WHERE leased_until IS NOT NULL")
    if here.plans.one(plan.id).state is not PlanState.DONE:
        here.plans.apply(plan.id, "bob")
    return here.plans.one(plan.id)


@pytest.mark.slow
def test_another_process_goes_on_and_each_letter_is_sent_once(stack: Stack, tmp_path: Path):
    start(stack, "many")
    with desk(stack, "many", many=COMPLETION) as here:
        for times, step in enumerate(STEPS, 1):
            mended = tmp_path / f"mended {step}"
            stack.produce("many", *({"mend": str(mended), "id": number} for number in range(LETTERS)))
            record(stack, here, "many", times * LETTERS)
            plan = replay(here, rate=12.0)
            assert plan.counts.letters == LETTERS, step
            mended.touch()
            apply_killed(stack, plan.id, step)
            plan = here.plans.wait(gone_on_with(here, plan).id)
            assert plan.outcomes == {"done": LETTERS}, (step, plan)
            assert statuses(here) == {"resolved": times * LETTERS}, step
            sent = Counter(read_retry_key(each) for each in stack.records("many.replay"))
            assert set(sent.values()) == {1}, step
            assert len(sent) == times * LETTERS, step
    assert twice(stack, "many") == {}


@pytest.mark.slow
def test_what_is_discarded_is_so_in_the_database_and_the_ledger(stack: Stack):
    start(stack, "many")
    with desk(stack, "many", many=COMPLETION) as here:
        for times, step in enumerate(DISCARDING, 1):
            stack.produce("many", *({"dead": True, "id": number} for number in range(LETTERS)))
            record(stack, here, "many", times * LETTERS)
            plan = here.plans.make(PlanKind.DISCARD, LetterFilter(), PlanOptions(), "ann", "no such shop")
            apply_killed(stack, plan.id, step)
            assert gone_on_with(here, plan).outcomes == {"discarded": LETTERS}, step
            assert statuses(here) == {"discarded": times * LETTERS}, step
            assert audit(stack, "many")["discarded"] == times * LETTERS, step
