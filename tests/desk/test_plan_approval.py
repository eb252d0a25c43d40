"""The approval of a plan: once, in the version that the user saw, and not after other plans took its letters."""

from types import SimpleNamespace

import pytest

from bridge.deadletters.db import letter_rows, plan_item_rows
from bridge.deadletters.db import plan_rows as stored
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanState, preview_plan
from bridge.deadletters.model.letter_filter import ALL_LETTERS
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.plan_progress import PlanApproval, PlanProgressReader
from bridge.deadletters.replay.plan_service import PlanService
from bridge.errors import PlanChanged, PlanRefused
from tests.desk.test_plans import fill, make
from tests.desk.test_plans import plans as all_plans

#: The fixture of that file.
plans = all_plans


@pytest.fixture
def desk(plans: PlanService, database) -> SimpleNamespace:
    fill(database)
    return SimpleNamespace(plans=plans, progress=PlanProgressReader(database))


def test_who_decides_says_as_what_they_have_seen_the_plan(desk, database):
    plan = make(desk.plans)
    seen = desk.progress.read_progress(plan.id)
    desk.plans.decide(plan.id, "ann", PlanApproval(seen.key, seen.left, 50.0, True, "mended"))
    done = desk.progress.read_progress(plan.id)
    assert (done.plan.state, done.plan.options.rate, done.plan.why) == (PlanState.APPLYING, 50.0, "mended")
    assert [wave.letters for wave in done.waves] == [1, 4]
    for tried in (
        lambda: desk.plans.decide(plan.id, "bob", PlanApproval(seen.key, seen.left)),
        lambda: desk.plans.stop(plan.id, "bob", "no", seen.key),
    ):
        with pytest.raises(PlanChanged, match="applied, by ann at"):
            tried()
    assert desk.plans.stop(plan.id, "bob", "no", done.key).state is PlanState.STOPPED


def test_a_plan_whose_letters_others_have_taken_is_looked_at_again(desk, database):
    mine, other = make(desk.plans), make(desk.plans, PlanKind.ARCHIVE)
    seen = desk.progress.read_progress(mine.id)
    with database.writing() as connection:
        (first, *_) = plan_item_rows.read_waiting_items(connection, other.id, 0, 10)
        assert first.letter_id is not None
        plan_item_rows.claim_items(connection, other.id, {first.position: None}, 2**42)
        plan_item_rows.end_items(connection, other.id, {first.position: ""}, PlanItemState.DONE, 2**42)
        letter_rows.change_letter_status(connection, [first.letter_id], LetterStatus.OPEN, LetterStatus.ARCHIVED, 2**42)
    with pytest.raises(PlanChanged, match=f"Plan {other.id} of ann has taken 1 of these 5 letters. 4 are left"):
        desk.plans.decide(mine.id, "bob", PlanApproval(seen.key, seen.left))
    again = desk.progress.read_progress(mine.id)
    assert (again.gone, again.left, preview_plan(again.plan, again.gone).elsewhere) == (1, 4, 1)
    assert desk.plans.decide(mine.id, "bob", PlanApproval(again.key, again.left)).state is PlanState.APPLYING


def test_a_draft_of_a_discard_needs_its_reason_when_it_is_decided_on(desk, database):
    plan = desk.plans.draft(PlanKind.DISCARD, ALL_LETTERS, "ann")
    seen = desk.progress.read_progress(plan.id)
    with pytest.raises(PlanRefused, match="a reason is needed"):
        desk.plans.decide(plan.id, "ann", PlanApproval(seen.key, seen.left))
    desk.plans.decide(plan.id, "ann", PlanApproval(seen.key, seen.left, why="no such shop"))
    assert desk.progress.read_progress(plan.id).taken_up
    with database.writing() as connection:
        assert stored.find_abandoned_plans(connection) == []
