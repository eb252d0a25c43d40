"""Killed (kill -9) between any two steps of applying a plan: another process goes on, and each letter is sent once."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.plan.plan import Options, State, What
from bridge.records.parked import whose
from tests.desks import desk, record, replay
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.processes import Process, Stack
from tests.promises import audit, twice

#: On both databases.
pytestmark = pytest.mark.usefixtures("desk_url")
STEPS = ("begun", "leased", "claiming", "moving", "claimed", "published", "noting", "noted", "done")


def apply_killed(stack: Stack, plan_id: int, step: str) -> None:
    """`bridge deadletters plans apply`, which dies at a step."""
    words = ("-m", "bridge", "deadletters", "plans", "apply", str(plan_id), "--yes")
    killed: Process = stack.start(
        "apply", sys.executable, *words, HANDLERS="tests.handlers.plan_killed", TEST_KILL=step
    )
    assert killed.ends(40) == -9, killed.text
    assert f"kills itself: {step}" in killed.text


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_another_process_goes_on_and_each_letter_is_sent_once(stack: Stack, tmp_path: Path, step: str):
    mended = tmp_path / "mended"
    start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(20)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 20)
        plan = replay(here, rate=12.0)
        mended.touch()
        apply_killed(stack, plan.id, step)
        # As if its lease had run out.
        with here.database.writing() as connection:
            connection.exec_driver_sql("UPDATE plans SET leased_until = 0 WHERE leased_until IS NOT NULL")
        plan = here.plans.apply(plan.id, "bob") if here.plans.one(plan.id).state is not State.DONE else plan
        plan = here.plans.wait(plan.id)
        assert plan.outcomes == {"done": 20}, plan
        assert statuses(here) == {"resolved": 20}
    sent = Counter(whose(each) for each in stack.records("many.replay"))
    assert set(sent.values()) == {1}
    assert len(sent) == 20
    assert twice(stack, "many") == {}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["claimed", "told", "settling", "noted"])
def test_what_is_discarded_is_so_in_the_database_and_the_ledger(stack: Stack, step: str):
    start(stack, "many")
    stack.produce("many", *({"dead": True, "id": number} for number in range(20)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 20)
        plan = here.plans.make(What.DISCARD, Filter(), Options(), "ann", "no such shop")
        apply_killed(stack, plan.id, step)
        with here.database.writing() as connection:
            connection.exec_driver_sql("UPDATE plans SET leased_until = 0 WHERE leased_until IS NOT NULL")
        plan = here.plans.apply(plan.id, "bob") if here.plans.one(plan.id).state is not State.DONE else plan
        assert here.plans.one(plan.id).outcomes == {"discarded": 20}
        assert statuses(here) == {"discarded": 20}
    assert audit(stack, "many")["discarded"] == 20
