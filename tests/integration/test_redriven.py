"""How what a redrive has sent ends is told as it is, whatever its delivery was before."""

from pathlib import Path

from bridge.deadletters.fates import Fates
from bridge.deadletters.outcomes.outcomes import Outcomes
from bridge.deadletters.plan.plan import Options
from bridge.deadletters.redrive.redrive import Asked
from tests.desks import desk, record, replay
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.processes import Stack, eventually
from tests.promises import all_settled


def test_what_dies_though_it_was_done_before_is_dead_and_runs_when_it_is_sent_back(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    mended.touch()
    start(stack, "odd")
    stack.produce("odd", {"odd": {"mend": str(mended)}}, key=b"k")
    all_settled(stack, "odd", done=2)
    mended.unlink()
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        asked = Asked(stack.topic("odd"), "earliest", handlers=("odd",))
        plan = here.redrive.plan(asked, Options(again=True), "ann")
        here.plans.apply(plan.id, "ann")
        with Fates.opened(here.settings) as fates:
            outcomes = Outcomes(here.settings, here.database, fates)
            eventually(lambda: outcomes.look(plan.id) == 0, 30, "it has ended")
        assert here.plans.one(plan.id).outcomes == {"dead": 1}
        # Its letter is sent back, and runs, though its delivery was done all the time.
        record(stack, here, "odd", 1)
        mended.touch()
        back = replay(here)
        assert back.counts.done == 0
        assert here.plans.wait(here.plans.apply(back.id, "ann").id).outcomes == {"done": 1}
        assert statuses(here) == {"resolved": 1}
    assert [run.outcome for run in stack.runs("odd")] == ["begun", "done", "begun", "begun", "done"]
