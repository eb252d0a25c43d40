"""Letters of an ordered topic that go back together run in order, one at a time; and beside what lives."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.bulk_plan import PlanState
from tests.desk_of_stack import desk, recorder, replay
from tests.integration.test_replay import count, start
from tests.processes import Run, Stack, eventually

#: On both databases.
pytestmark = pytest.mark.usefixtures("desk_url")
KEYED = {"commit": "completion", "order": "key"}
STEPS = tuple(f"tests.handlers.fates.{name}" for name in ("first", "second", "third"))
LINE = {"commit": "completion", "order": "partition"}


def again(stack: Stack, handler: str, places: list[str]) -> list[Run]:
    """The runs of what was sent back."""
    return [run for run in stack.runs(handler) if run.coordinates in places and run.attempt > 1]


def one_after_another(runs: list[Run], places: list[str]) -> None:
    """Each begins once the one before has ended, in the order in which they were produced."""
    begun = [run for run in runs if run.outcome == "begun"]
    assert [run.coordinates for run in begun] == places
    done = {run.coordinates: run.time for run in runs if run.outcome == "done"}
    for one, other in pairwise(begun):
        assert done.get(one.coordinates, one.time) < other.time


def test_letters_of_a_key_run_one_after_another_also_when_one_dies_again_and_keys_do_not_wait(
    stack: Stack, tmp_path: Path
):
    mended, hold = tmp_path / "mended", tmp_path / "hold"
    hold.touch()
    start(stack, "keyed", keyed=KEYED)
    letter: dict[str, Any] = {"mend": str(mended), "sleep": 0.2}
    a = stack.produce("keyed", {"dead": True}, letter, {**letter, "hold": str(hold)}, letter, letter, key=b"a")
    b = stack.produce("keyed", letter, letter, letter, key=b"b")
    recorder(stack)
    with desk(stack, "keyed", keyed=KEYED) as here:
        eventually(lambda: count(here, letters) == 8, 40, "all are recorded")
        mended.touch()
        hold.unlink()
        plan = here.plans.approve(replay(here).id, "ann")
        eventually(lambda: set(b) <= set(stack.done("keyed")), 40, "a key does not wait for another")
        eventually(lambda: a[2] in {run.coordinates for run in again(stack, "keyed", a)}, 40)
        assert here.plans.one(plan.id).state is PlanState.APPLYING
        # What lives does not wait for letters of its key, nor they for it.
        (live,) = stack.produce("keyed", 1, key=b"a")
        eventually(lambda: live in stack.done("keyed"), 60)
        assert a[2] not in stack.done("keyed")
        hold.touch()
        eventually(lambda: here.plans.one(plan.id).is_over, 60)
        assert here.plans.one(plan.id).outcomes == {"dead": 1, "done": 7}
    one_after_another(again(stack, "keyed", a), a)
    one_after_another(again(stack, "keyed", b), b)


@pytest.mark.slow
def test_letters_of_a_partition_run_one_after_another(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "line", line=LINE)
    placed = stack.produce("line", *[{"mend": str(mended), "sleep": 0.2}] * 4)
    recorder(stack)
    with desk(stack, "line", line=LINE) as here:
        eventually(lambda: count(here, letters) == 4, 40, "all are recorded")
        mended.touch()
        plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
        assert plan.outcomes == {"done": 4}
    one_after_another(again(stack, "line", placed), placed)
    runs = [run for run in again(stack, "line", placed) if run.outcome == "done"]
    assert all(other.time - one.time < 8 for one, other in pairwise(runs)), "the next follows soon"


@pytest.mark.slow
def test_in_a_sequence_the_next_begins_once_the_whole_sequence_has_ended_for_the_one_before(
    stack: Stack, tmp_path: Path
):
    mended = tmp_path / "mended"
    chosen = {**KEYED, "sequence": STEPS}
    start(stack, "steps", steps=chosen)
    letter: dict[str, Any] = {"first": {"mend": str(mended)}, "third": {"sleep": 1.5}}
    further = {**letter, "second": {"dead": True}}
    placed = stack.produce("steps", letter, further, letter, key=b"k")
    recorder(stack)
    with desk(stack, *STEPS, steps=chosen) as here:
        eventually(lambda: count(here, letters) == 3, 40, "all are recorded")
        mended.touch()
        plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
        assert plan.outcomes == {"done": 3}
    eventually(lambda: placed[2] in stack.done("third"), 60)
    runs = [run for run in stack.runs() if run.attempt > 1 or run.handler != "first"]
    assert [(run.handler, run.coordinates, run.outcome) for run in runs] == [
        (handler, place, outcome)
        for place in placed
        for handler in ("first", "second", "third")
        for outcome in ("begun", "done")
        if place != placed[1] or handler == "first" or (handler, outcome) == ("second", "begun")
    ]
