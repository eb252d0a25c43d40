"""Letters go back by a plan: to the handler that failed and to no other, each once; and how they end is known."""

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from bridge.deadletters.plan import State
from bridge.deadletters.store.schema import letters
from tests.desks import desk, record, replay
from tests.processes import Stack
from tests.promises import all_settled, choose

COMPLETION: dict[str, Any] = {"commit": "completion"}


def statuses(here: Any) -> dict[str, int]:
    """How many letters have which status."""
    with here.database.reading() as connection:
        rows = connection.execute(select(letters.c.status, func.count()).group_by(letters.c.status))
        return {row[0]: row[1] for row in rows}


def start(stack: Stack, *topics: str, **settings: Any) -> None:
    choose(stack, dict.fromkeys(topics, COMPLETION), **settings)
    stack.make_topics(*topics)
    stack.worker(wait=False)
    stack.bridge()


def test_a_letter_goes_to_the_handler_that_failed_alone_and_is_resolved(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd")
    (dead, *_) = stack.produce("odd", {"odd": {"mend": str(mended)}}, 1, 2, key=b"k")
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        record(stack, here, "odd", 1)
        plan = replay(here)
        assert (plan.state, plan.counts.letters, plan.counts.handlers) == (State.PLANNED, 1, {"odd": {"permanent": 1}})
        mended.touch()
        plan = here.plans.apply(plan.id, "ann")
        assert plan.state is State.DONE
        plan = here.plans.wait(plan.id)
        assert plan.outcomes == {"done": 1}
        assert plan.is_good
        assert statuses(here) == {"resolved": 1}
    all_settled(stack, "odd", done=6, letters=1)
    runs = [(run.handler, run.outcome) for run in stack.runs(coordinates=dead)]
    assert sorted(runs) == [("odd", "begun")] * 2 + [("odd", "done"), ("odd_too", "begun"), ("odd_too", "done")]
