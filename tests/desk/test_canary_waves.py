"""Which deliveries of a canary have one attempt: those of a wave that another one follows."""

import pytest
from celery import Celery

from bridge.deadletters.db import plan_item_rows, plan_rows
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.editing.letter_edit import LetterEditor
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.replay.plan_progress import PlanProgressReader
from bridge.deadletters.replay.plan_service import PlanService
from bridge.handler_routes import Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.rows import kind, letter

ONE = ValuePatch.read('[{"op": "test", "path": "/n", "value": 1}, {"op": "replace", "path": "/n", "value": 2}]')


def record(database, count, *, value=b"{}", start=0):
    with database.writing() as connection:
        charge = kind(connection)
        for offset in range(start, start + count):
            letter(connection, charge, offset, value=value, value_size=len(value))


def followed(database, plan_id):
    """How many of a plan's deliveries are in waves that another follows; they are its first."""
    with database.reading() as connection:
        last = plan_item_rows.find_last_wave(connection, plan_id)
        found = [each.wave < last for each in plan_item_rows.read_waiting_items(connection, plan_id, last, 1_000)]
    assert found == sorted(found, reverse=True)
    return found.count(True)


def planned(connection, *, canary):
    plan_id, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions(canary=canary))
    plan_item_rows.freeze_letters(connection, plan_id, select_matching_letters(LetterFilter()), canary=canary)
    return plan_id


@pytest.mark.parametrize(
    ("count", "early"), [(1, 0), (2, 1), (6, 1), (7, 6), (26, 6), (27, 26), (126, 26), (127, 126), (150, 126)]
)
def test_all_waves_of_a_canary_but_its_last_are_followed_by_another(database, count, early):
    record(database, count)
    with database.writing() as connection:
        canary, plain = planned(connection, canary=True), planned(connection, canary=False)
    assert (followed(database, canary), followed(database, plain)) == (early, 0)


def test_what_is_added_to_a_plan_is_in_its_waves(database):
    record(database, 4)
    with database.writing() as connection:
        plan_id = planned(connection, canary=True)
        plan_item_rows.add_items(
            connection, plan_id, [PlanItem(position, None, "x", 0) for position in (5, 6, 7)], canary=True
        )
    assert followed(database, plan_id) == 6


def test_of_a_patch_those_that_it_leaves_out_are_in_no_wave(database):
    record(database, 9)
    record(database, 8, value=b'{"n": 1}', start=9)
    with Celery("shop", set_as_current=False) as app:
        plan = LetterEditor(app, database).patch(LetterFilter(), ONE, PlanOptions(canary=True), "ann", force=True)
    assert plan.outcomes == {"waiting": 8, "skipped": 9}
    assert followed(database, plan.id) == 6


def test_what_a_process_left_behind_is_sent_as_what_it_was(database):
    record(database, 8)
    with database.writing() as connection:
        plan_id = planned(connection, canary=True)
        plan_item_rows.claim_items(connection, plan_id, dict.fromkeys(range(1, 9)), 1)
        left = [item.wave for item, _ in plan_item_rows.read_claimed_items(connection, plan_id, 10)]
    assert left == [0, *[1] * 5, *[2] * 2]


def end_wave(database, plan_id, positions, *, dead=()):
    """Send a wave and stop the plan: some of its letters die again, the others end well."""
    with database.writing() as connection:
        plan_rows.change_plan_state(connection, plan_id, [PlanState.PLANNED, PlanState.STOPPED], PlanState.APPLYING)
        plan_item_rows.claim_items(connection, plan_id, dict.fromkeys(positions), 1)
        for position in positions:
            to = PlanItemState.DEAD if position in dead else PlanItemState.DONE
            plan_item_rows.end_items(connection, plan_id, {position: ""}, to, 2)


def stop_and_go_on(database, plan_id):
    with database.writing() as connection:
        plan_rows.change_plan_state(
            connection, plan_id, [PlanState.PLANNED, PlanState.APPLYING], PlanState.STOPPED, "canary: it died"
        )
    settings = Settings(FileSettings(), EnvironmentSettings(), "", {})
    PlanService(Celery(set_as_current=False), settings, Routes({}), database).approve(plan_id, "ann")


def waves_of(database, plan_id):
    """Of each wave its number, how many letters it has, at how many deaths it stops, and if the plan is at it."""
    found = PlanProgressReader(database).read_progress(plan_id).waves
    return [(each.number, each.letters, each.stops_at, each.is_now) for each in found]


def test_a_canary_that_is_gone_on_with_numbers_its_new_waves_behind_those_that_were_sent(database):
    record(database, 30)
    with database.writing() as connection:
        plan_id = planned(connection, canary=True)
    stop_and_go_on(database, plan_id)
    assert waves_of(database, plan_id) == [(1, 1, 1, True), (2, 5, 1, False), (3, 20, 2, False), (4, 4, 1, False)]

    end_wave(database, plan_id, [1])
    end_wave(database, plan_id, [2, 3, 4], dead=[3])
    stop_and_go_on(database, plan_id)
    sent = [(1, 1, 1, False), (2, 3, 1, False)]
    assert waves_of(database, plan_id) == [*sent, (3, 1, 1, True), (4, 5, 1, False), (5, 20, 2, False)]
    assert [each.wave for each in PlanProgressReader(database).each(plan_id, (), 0, 6)] == [1, 2, 2, 2, 3, 4]

    stop_and_go_on(database, plan_id)
    end_wave(database, plan_id, [5])
    stop_and_go_on(database, plan_id)
    assert waves_of(database, plan_id) == [
        *sent,
        (3, 1, 1, False),
        (4, 1, 1, True),
        (5, 5, 1, False),
        (6, 19, 1, False),
    ]
