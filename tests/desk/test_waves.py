"""Which deliveries of a canary have one attempt: those of a wave that another one follows."""

import pytest
from celery import Celery

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.mending.mending import Mending
from bridge.deadletters.mending.patching import Patch
from bridge.deadletters.plan.plan import ItemState, Options, State, What
from bridge.deadletters.plans.plans import Plans
from bridge.deadletters.questions.progress import Progresses
from bridge.deadletters.store import items, plans
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.matching import matching
from tests.desk.rows import kind, letter

ONE = Patch.read('[{"op": "test", "path": "/n", "value": 1}, {"op": "replace", "path": "/n", "value": 2}]')


def record(database, count, *, value=b"{}", start=0):
    with database.writing() as connection:
        charge = kind(connection)
        for offset in range(start, start + count):
            letter(connection, charge, offset, value=value, value_size=len(value))


def followed(database, plan_id):
    """How many of a plan's deliveries are in waves that another follows; they are its first."""
    with database.reading() as connection:
        last = items.last_wave(connection, plan_id)
        found = [each.wave < last for each in items.waiting(connection, plan_id, last, 1_000)]
    assert found == sorted(found, reverse=True)
    return found.count(True)


def planned(connection, *, canary):
    plan_id, _ = plans.add(connection, What.REPLAY, "ann", "", {}, Options(canary=canary))
    items.freeze(connection, plan_id, matching(Filter()), canary=canary)
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
        items.add(connection, plan_id, [Item(position, None, "x", 0) for position in (5, 6, 7)], canary=True)
    assert followed(database, plan_id) == 6


def test_of_a_patch_those_that_it_leaves_out_are_in_no_wave(database):
    record(database, 9)
    record(database, 8, value=b'{"n": 1}', start=9)
    with Celery("shop", set_as_current=False) as app:
        plan = Mending(app, database).patch(Filter(), ONE, Options(canary=True), "ann", force=True)
    assert plan.outcomes == {"waiting": 8, "skipped": 9}
    assert followed(database, plan.id) == 6


def test_what_a_process_left_behind_is_sent_as_what_it_was(database):
    record(database, 8)
    with database.writing() as connection:
        plan_id = planned(connection, canary=True)
        items.claim(connection, plan_id, dict.fromkeys(range(1, 9)), 1)
        left = [item.wave for item, _ in items.claimed(connection, plan_id, 10)]
    assert left == [0, *[1] * 5, *[2] * 2]


def end_wave(database, plan_id, positions, *, dead=()):
    """Send a wave and stop the plan: some of its letters die again, the others end well."""
    with database.writing() as connection:
        plans.move(connection, plan_id, [State.PLANNED, State.STOPPED], State.APPLYING)
        items.claim(connection, plan_id, dict.fromkeys(positions), 1)
        for position in positions:
            to = ItemState.DEAD if position in dead else ItemState.DONE
            items.end(connection, plan_id, {position: ""}, to, 2)


def stop_and_go_on(database, plan_id):
    with database.writing() as connection:
        plans.move(connection, plan_id, [State.PLANNED, State.APPLYING], State.STOPPED, "canary: it died")
        plan = plans.one(connection, plan_id)
        assert plan is not None
        Plans._move_on(connection, plan, "ann")


def waves_of(database, plan_id):
    """Of each wave its number, how many letters it has, at how many deaths it stops, and if the plan is at it."""
    found = Progresses(database).of(plan_id).waves
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
    assert [each.wave for each in Progresses(database).each(plan_id, (), 0, 6)] == [1, 2, 2, 2, 3, 4]

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
