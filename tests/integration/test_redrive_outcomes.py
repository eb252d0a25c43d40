"""How what a redrive has sent ends is told as it is, whatever its delivery was before."""

from pathlib import Path
from typing import Any

import pytest

from bridge.deadletters.model.bulk_plan import PlanOptions
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import RecordingProgress
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from bridge.deadletters.replay.replay_outcomes import ReplayOutcomes
from tests.delivery_checks import all_settled, delete_topic
from tests.desk_of_stack import desk, record, replay
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.processes import Stack, eventually


def done_once(stack: Stack, folder: Path, settings: dict[str, Any] | None = None, **said: Any) -> Path:
    """Have a record of `odd` done; return the file without which its handler dies from now on."""
    mended = folder / "mended"
    mended.touch()
    start(stack, "odd", settings=settings)
    stack.produce("odd", {"odd": {"mend": str(mended), **said}}, key=b"k")
    eventually(lambda: stack.done("odd"), 60, "it is done, parked before or not")
    all_settled(stack, "odd", done=2)
    return mended


def test_what_dies_though_it_was_done_before_is_dead_and_runs_when_it_is_sent_back(stack: Stack, tmp_path: Path):
    mended = done_once(stack, tmp_path)
    mended.unlink()
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        asked = RedriveRequest(stack.topic("odd"), "earliest", handlers=("odd",))
        plan = here.redrive.plan(asked, PlanOptions(again=True), "ann")
        here.plans.apply(plan.id, "ann")
        with LedgerFates.opened(here.settings) as fates:
            outcomes = ReplayOutcomes(here.settings, here.database, fates)
            eventually(lambda: outcomes.note_outcomes(plan.id) == 0, 30, "it has ended")
        assert here.plans.one(plan.id).outcomes == {"dead": 1}
        # Its letter is sent back, and runs, though its delivery was done all the time.
        record(stack, here, "odd", 1)
        mended.touch()
        back = replay(here)
        assert back.counts.done == 0
        assert here.plans.wait(here.plans.apply(back.id, "ann").id).outcomes == {"done": 1}
        assert statuses(here) == {"resolved": 1}
    assert [run.outcome for run in stack.runs("odd")] == ["begun", "done", "begun", "begun", "done"]


def test_what_dies_in_a_retry_and_is_recorded_while_it_is_looked_for_is_dead(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mended = done_once(stack, tmp_path, {"kafka_park_after": 1, "kafka_retry_tiers": (1, 4)}, later=1)
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        asked = RedriveRequest(stack.topic("odd"), "earliest", handlers=("odd",))
        plan = here.plans.apply(here.redrive.plan(asked, PlanOptions(again=True), "ann").id, "ann")
        eventually(lambda: len([run for run in stack.runs("odd") if run.outcome == "begun"]) == 3, 30, "it is parked")
        mended.unlink()
        eventually(lambda: stack.records("odd.dlq"), 30, "it is dead")

        def all_of(*_: Any) -> bool:
            record(stack, here, "odd", 1)
            return True

        monkeypatch.setattr(RecordingProgress, "all_of", all_of)
        with LedgerFates.opened(here.settings) as fates:
            outcomes = ReplayOutcomes(here.settings, here.database, fates)
            eventually(lambda: outcomes.note_outcomes(plan.id) == 0, 30, "it has ended")
        assert here.plans.one(plan.id).outcomes == {"dead": 1}


def test_a_letter_of_an_earlier_one_is_sent_by_the_next_and_does_not_stay_open(stack: Stack, tmp_path: Path):
    mended = done_once(stack, tmp_path)
    mended.unlink()
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        asked = RedriveRequest(stack.topic("odd"), "earliest", handlers=("odd",))
        here.plans.apply(here.redrive.plan(asked, PlanOptions(again=True), "ann").id, "ann")
        record(stack, here, "odd", 1)
        mended.touch()
        plan = here.plans.apply(here.redrive.plan(asked, PlanOptions(again=True), "ann").id, "ann")
        assert statuses(here) in ({"replaying": 1}, {"resolved": 1})
        assert here.plans.wait(plan.id).outcomes == {"done": 1}
        assert statuses(here) == {"resolved": 1}
        # Now that none is open, what is done is sent once more as itself.
        plan = here.plans.apply(here.redrive.plan(asked, PlanOptions(again=True), "ann").id, "ann")
        assert here.plans.wait(plan.id).outcomes == {"done": 1}
    assert [run.outcome for run in stack.runs("odd")] == ["begun", "done", "begun", *["begun", "done"] * 2]


def test_where_its_replay_topic_was_made_again_it_does_not_take_the_fates_of_those_that_lie_there_now(stack: Stack):
    bridge = start(stack, "many")
    stack.produce("many", 1, 2, 3, 4)
    all_settled(stack, "many", done=4)
    with desk(stack, "many", many=COMPLETION) as here:
        first, second = (
            here.redrive.plan(RedriveRequest(stack.topic("many"), since, until), PlanOptions(again=True), "ann")
            for since, until in (("0", "2"), ("2", "4"))
        )
        # Nobody reads what is sent.
        bridge.kill()
        assert here.plans.apply(first.id, "ann").outcomes == {"sent": 2}
        delete_topic(stack, "many.replay")
        eventually(lambda: not stack.has_topic("many.replay"), 30)
        here.plans.apply(second.id, "ann")
        stack.bridge()
        assert here.plans.wait(second.id).outcomes == {"done": 2}
        assert here.plans.wait(first.id).outcomes == {"unknown": 2}
    assert sorted(run.value for run in stack.runs("many") if run.outcome == "done") == [1, 2, 3, 3, 4, 4]
