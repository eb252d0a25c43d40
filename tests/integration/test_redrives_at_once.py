"""Two plans that have the same delivery: it goes out for one of them, and the other says why it left it out."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanOptions
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from tests.delivery_checks import all_settled, audit
from tests.desk_of_stack import desk, record, replay
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.processes import Stack, eventually

KEYED = {"commit": "completion", "order": "key"}


def dead_once(stack: Stack, mended: Path, **said: str) -> None:
    """Have a record of `blocking` die; its handler is mended now."""
    start(stack, "blocking", settings={"kafka_park_after": 1, "kafka_retry_tiers": (1, 4)})
    stack.produce("blocking", {"blocking": {"mend": str(mended), **said}}, key=b"k")
    all_settled(stack, "blocking", done=0, dead=1, letters=1)
    mended.touch()


def redrives(here: DeadLetterService, stack: Stack, *, again: bool = False) -> BulkPlan:
    """A plan that sends the record again, made."""
    return here.redrive.plan(RedriveRequest(stack.topic("blocking"), "earliest"), PlanOptions(again=again), "ann")


def runs(stack: Stack, outcome: str) -> int:
    return sum(run.outcome == outcome for run in stack.runs("blocking"))


def left_out(here: DeadLetterService, plan: BulkPlan) -> str:
    """Why the one delivery of a plan was left out of it."""
    (only,) = here.progress.each(plan.id, [PlanItemState.SKIPPED], 0, 10)
    return only.why


@pytest.mark.parametrize("again", [False, True], ids=["plain", "again"])
@pytest.mark.parametrize("until", ["hold", "until"], ids=["running", "parked"])
def test_what_one_redrive_has_under_way_is_left_out_of_the_other(stack: Stack, tmp_path: Path, until: str, again: bool):
    go = tmp_path / "go"
    go.touch()
    dead_once(stack, tmp_path / "mended", **{until: str(go)})
    go.unlink()
    with desk(stack, "blocking", blocking=COMPLETION) as here:
        one, other = redrives(here, stack, again=again), redrives(here, stack, again=again)
        here.plans.apply(one.id, "ann")
        eventually(lambda: runs(stack, "begun") >= 2, 30, "it runs once more")
        here.plans.apply(other.id, "bob")
        assert left_out(here, other) == f"plan {one.id} has it in flight"
        go.touch()
        # What is parked and asked for again is dead until then, which is settled too.
        eventually(lambda: audit(stack, "blocking")["done"] == 1, 40)
        all_settled(stack, "blocking", done=1, letters=1)
        assert len(stack.records("blocking.replay")) == 1
    assert runs(stack, "done") == 1


def test_what_is_done_since_a_redrive_was_planned_is_left_out(stack: Stack, tmp_path: Path):
    dead_once(stack, tmp_path / "mended")
    with desk(stack, "blocking", blocking=COMPLETION) as here:
        one, other = redrives(here, stack), redrives(here, stack)
        assert here.plans.wait(here.plans.apply(one.id, "ann").id).outcomes == {"done": 1}
        assert left_out(here, here.plans.apply(other.id, "bob")) == "it is done by now"
    assert runs(stack, "done") == 1


@pytest.mark.parametrize("again", [False, True], ids=["plain", "again"])
def test_what_has_a_letter_since_a_redrive_was_planned_goes_back_as_that(stack: Stack, tmp_path: Path, again: bool):
    dead_once(stack, tmp_path / "mended")
    with desk(stack, "blocking", blocking=COMPLETION) as here:
        one = redrives(here, stack, again=again)
        record(stack, here, "blocking", 1)
        replayed = replay(here)
        assert here.plans.wait(here.plans.apply(one.id, "ann").id).outcomes == {"done": 1}
        assert statuses(here) == {"resolved": 1}
        assert left_out(here, here.plans.apply(replayed.id, "ann")).startswith("it is resolved by now, by plan 1")
    assert runs(stack, "done") == 1


def test_what_a_redrive_has_under_way_is_left_out_of_the_replay_of_its_letter(stack: Stack, tmp_path: Path):
    go = tmp_path / "go"
    go.touch()
    dead_once(stack, tmp_path / "mended", until=str(go))
    go.unlink()
    with desk(stack, "blocking", blocking=COMPLETION) as here:
        here.plans.apply(redrives(here, stack).id, "ann")
        eventually(lambda: runs(stack, "begun") >= 2, 30, "it runs once more")
        record(stack, here, "blocking", 1)
        assert left_out(here, here.plans.apply(replay(here).id, "bob")) == "plan 1 has it in flight"
        go.touch()
        eventually(lambda: audit(stack, "blocking")["done"] == 1, 40)
        all_settled(stack, "blocking", done=1, letters=1)
    assert runs(stack, "done") == 1


def test_a_plan_on_an_ordered_topic_sees_by_itself_that_what_another_had_under_way_has_ended(
    stack: Stack, tmp_path: Path
):
    go = tmp_path / "go"
    go.touch()
    start(stack, "keyed", keyed=KEYED)
    stack.produce("keyed", {"hold": str(go)}, key=b"k")
    eventually(lambda: len(stack.done("keyed")) == 1, 40)
    go.unlink()
    with desk(stack, "keyed", keyed=KEYED) as here, ThreadPoolExecutor(1) as pool:
        one, other = (
            here.redrive.plan(RedriveRequest(stack.topic("keyed"), "earliest"), PlanOptions(again=True), "ann")
            for _ in range(2)
        )
        # Nobody follows it: no recorder runs, and who has applied it has left.
        assert here.plans.apply(one.id, "ann").outcomes == {"sent": 1}
        applied = pool.submit(here.plans.apply, other.id, "bob")
        eventually(lambda: here.plans.one(other.id).began_at is not None, 30)
        time.sleep(2)
        go.touch()
        eventually(applied.done, 30, "the other has gone on")
        assert here.plans.wait(other.id).outcomes == {"done": 1}
    assert len(stack.done("keyed")) == 3
