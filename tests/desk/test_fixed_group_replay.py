"""The replay of a failure group that is fixed in a version: automatic, once, and only if it helps."""

import threading

import pytest
from sqlalchemy import select, update

from bridge.deadletters.db import audit_rows, letter_rows, plan_item_rows, plan_rows
from bridge.deadletters.db import group_rows as stored
from bridge.deadletters.db.table_definitions import cause_fixes, groups, kinds, letters
from bridge.deadletters.db.table_definitions import items as item_rows
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanState
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay import fixed_group_replay
from tests.desk.rows import kind, letter

HANDLER = "orders.handlers.charge"


@pytest.fixture
def workers():
    """What living workers announce."""
    return []


def worker(version):
    return {"handlers": [HANDLER], "handler_versions": {HANDLER: version}}


def record(database, version, count=3, **other):
    with database.writing() as connection:
        one = kind(connection, HANDLER, version=version, **other)
        offset = connection.execute(select(letters.c.offset).order_by(letters.c.id.desc()).limit(1)).scalar() or 0
        return [letter(connection, one, offset + at, failed_at=100) for at in range(1, count + 1)]


def mark(database, version="2", at=1_000):
    with database.writing() as connection:
        values = {"fixed_in": version, "fixed_at": at, "fixed_by": "ann", "regressed_at": None, "fixed_plan": None}
        connection.execute(update(groups).values(values))


def group(database):
    with database.reading() as connection:
        return connection.execute(select(groups)).one()


def made(database):
    with database.reading() as connection:
        return plan_rows.read_latest_plans(connection, 10)


def died(database, id_, version, at=2_000):
    """A letter fails in a version, as the recorder notes it."""
    with database.writing() as connection:
        one = kind(connection, HANDLER, version=version)
        connection.execute(update(letters).where(letters.c.id == id_).values(kind_id=one, failed_at=at))


def test_its_letters_go_back_as_a_canary_once_all_workers_have_the_version(database, workers):
    record(database, "1")
    mark(database)
    workers[:] = [worker("2"), worker("1")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert made(database) == []
    workers[:] = [worker("2"), worker("3")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    (plan,) = made(database)
    assert (plan.state, plan.by, plan.options.canary) == (PlanState.APPLYING, "fixed in 2", True)
    assert plan.outcomes == {PlanItemState.WAITING: 3}
    assert group(database).fixed_plan == plan.id
    with database.reading() as connection:
        (said,) = audit_rows.read_history(connection, group_id=group(database).id)
    assert (said.by, said.what, said.plan_id) == ("fixed in 2", "replay", plan.id)


def test_they_go_once_however_many_recorders_look(database, workers):
    record(database, "1")
    mark(database)
    workers[:] = [worker("2")]
    begin = threading.Barrier(3)

    def one() -> None:
        begin.wait()
        fixed_group_replay.check_fixed_groups(database, lambda: workers)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made(database)) == 1
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert len(made(database)) == 1


def test_what_an_older_worker_left_later_goes_too_once_those_before_it_have_ended(database, workers):
    record(database, "1")
    mark(database)
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    (first,) = made(database)
    later = record(database, "1", 2)
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert made(database) == [first]
    with database.writing() as connection:
        plan_item_rows.end_items(connection, first.id, {1: "", 2: "", 3: ""}, PlanItemState.DONE, 5)
        plan_rows.change_plan_state(connection, first.id, [PlanState.APPLYING], PlanState.DONE)
        ids = [id_ for (id_,) in connection.execute(select(letters.c.id)) if id_ not in later]
        letter_rows.change_letter_status(connection, ids, LetterStatus.OPEN, LetterStatus.RESOLVED, 5)
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    second, _ = made(database)
    assert second.outcomes == {PlanItemState.WAITING: 2}


@pytest.mark.parametrize("version", ["2", "3"])
def test_one_that_fails_in_that_version_opens_the_group_again_and_leaves_the_rest_alone(database, workers, version):
    first, *_ = record(database, "1")
    mark(database)
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    died(database, first, version)
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    now = group(database)
    assert now.fixed_in is None
    assert now.regressed_at is not None
    (plan,) = made(database)
    assert plan.state is PlanState.STOPPED
    assert f"failed in version {version}" in plan.stopped
    assert plan.outcomes == {PlanItemState.WAITING: 3}
    with database.reading() as connection:
        assert [each.what for each in audit_rows.read_history(connection, group_id=now.id)] == ["replay", "regressed"]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert len(made(database)) == 1


def test_one_that_dies_of_something_else_after_it_was_sent_back_is_a_regression_too(database, workers):
    first, *_ = record(database, "1")
    mark(database)
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    (plan,) = made(database)
    with database.writing() as connection:
        other = kind(connection, HANDLER, version="2", error_class="builtins.KeyError")
        connection.execute(update(letters).where(letters.c.id == first).values(kind_id=other, failed_at=2_000))
        plan_item_rows.end_items(connection, plan.id, {1: ""}, PlanItemState.DEAD, 5)
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert made(database)[0].state is PlanState.STOPPED


def test_what_failed_in_an_older_version_meanwhile_is_no_regression(database, workers):
    first, *_ = record(database, "1")
    mark(database)
    died(database, first, "1.5")
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert group(database).fixed_in == "2"


def test_what_failed_in_that_version_before_it_was_marked_is_no_regression_and_stays_where_it_is(database, workers):
    record(database, "2")
    mark(database)
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert group(database).fixed_in == "2"
    assert made(database) == []


def test_what_a_canary_or_a_person_has_stopped_is_not_begun_anew(database, workers):
    record(database, "1")
    mark(database)
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    (plan,) = made(database)
    with database.writing() as connection:
        plan_rows.change_plan_state(connection, plan.id, [PlanState.APPLYING], PlanState.STOPPED, "by ann")
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert len(made(database)) == 1


def test_the_letters_of_other_groups_stay(database, workers):
    record(database, "1")
    with database.writing() as connection:
        elsewhere = kind(connection, HANDLER, error_class="builtins.KeyError", version="1")
        letter(connection, elsewhere, 99)
        group_id = connection.execute(select(kinds.c.group_id).where(kinds.c.id != elsewhere).limit(1)).scalar_one()
        changed = {"fixed_in": "2", "fixed_at": 1_000}
        connection.execute(update(groups).where(groups.c.id == group_id).values(changed))
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    assert made(database)[0].outcomes == {PlanItemState.WAITING: 3}


def mark_cause(database, cause, version="2", at=1_000):
    with database.writing() as connection:
        group_id = connection.execute(select(groups.c.id)).scalar_one()
        assert stored.mark_cause(connection, group_id, cause, (version, at, "ann"))


def cause_fix(database):
    with database.reading() as connection:
        return connection.execute(select(cause_fixes)).one()


def test_of_a_cause_that_is_fixed_its_letters_go_back_and_those_of_other_causes_stay(database, workers):
    fixed = record(database, "1", 2, cause="aaa")
    record(database, "1", 3, cause="bbb")
    mark_cause(database, "aaa")
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    (plan,) = made(database)
    assert plan.outcomes == {PlanItemState.WAITING: 2}
    with database.reading() as connection:
        assert {row.letter_id for row in connection.execute(select(item_rows))} == set(fixed)
    assert (cause_fix(database).fixed_plan, group(database).fixed_plan) == (plan.id, None)
    assert "cause aaa of group 1 is fixed in 2" in plan.why


@pytest.mark.parametrize(("cause", "came_back"), [("aaa", True), ("bbb", False)])
def test_a_fixed_cause_has_a_regression_by_its_own_failures_alone(database, workers, cause, came_back):
    record(database, "1", cause="aaa")
    mark_cause(database, "aaa")
    workers[:] = [worker("2")]
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    with database.writing() as connection:
        letter(connection, kind(connection, HANDLER, version="2", cause=cause), 99, failed_at=2_000)
    fixed_group_replay.check_fixed_groups(database, lambda: workers)
    now = cause_fix(database)
    assert (now.fixed_in is None, now.regressed_at is not None) == (came_back, came_back)
    assert (group(database).fixed_in, group(database).regressed_at) == (None, None)
    assert made(database)[0].state is (PlanState.STOPPED if came_back else PlanState.APPLYING)
