"""Above DEADLETTERS_APPROVAL_ABOVE a plan awaits a second person, who is no other account of its planner."""

import time
from dataclasses import replace
from threading import Event

import pytest

from bridge.deadletters.accounts.api_token import ApiTokens
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.alarms.dead_letter_problems import find_awaiting_plans, find_dead_letter_problems
from bridge.deadletters.db import audit_rows, group_rows, letter_rows, plan_item_rows, plan_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.second_person import is_planner, needs_second_person
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay import plan_service
from bridge.deadletters.replay.fixed_group_replay import check_fixed_groups
from bridge.deadletters.replay.plan_progress import PlanApproval, PlanProgressReader
from bridge.deadletters.replay.plan_runner import resume_plans
from bridge.deadletters.replay.plan_service import PlanService
from bridge.errors import PlanChanged, PlanRefused
from bridge.handler_routes import Routes
from bridge.problems.problem import Problem
from bridge.settings import EnvironmentSettings
from tests.desk.test_plans import HANDLER, fill, make
from tests.desk.test_plans import plans as all_plans

#: The fixture of that file.
plans = all_plans


def above(plans: PlanService, count: int | None) -> PlanService:
    """The plans of a process with this setting."""
    said = EnvironmentSettings(DEADLETTERS_APPROVAL_ABOVE=count)
    return replace(plans, settings=replace(plans.settings, environment=said))


@pytest.fixture
def guarded(plans: PlanService, database: Database) -> PlanService:
    """Five open letters, of which four are the most that one person may replay."""
    fill(database)
    return above(plans, 4)


def acts(database: Database, plan: BulkPlan) -> list[tuple[str, str]]:
    with database.reading() as connection:
        return [(act.what, act.by) for act in audit_rows.read_history(connection, plan_id=plan.id)]


def to_be_done(database: Database) -> list[int]:
    with database.reading() as connection:
        return plan_rows.find_abandoned_plans(connection)


def test_a_large_plan_awaits_a_second_person_and_is_done_once_they_approve_it(guarded, database):
    plan = make(guarded, rate=50.0)
    assert guarded.approve(plan.id, "ann").state is PlanState.AWAITING
    assert to_be_done(database) == []
    approved = guarded.approve(plan.id, "bob")
    assert (approved.state, approved.planner, approved.approved_by) == (PlanState.APPLYING, "ann", "bob")
    assert approved.approved_at is not None
    assert approved.options.rate == 50.0
    assert to_be_done(database) == [plan.id]
    assert acts(database, plan) == [("replay", "ann"), ("request", "ann"), ("approve", "bob"), ("apply", "bob")]


def test_a_plan_that_awaits_somebody_is_a_problem_with_the_commands_for_it_until_they_decide(guarded, database):
    def said() -> list[Problem]:
        return find_dead_letter_problems(guarded.settings, Routes({}), database=database, kafka_answers=False)

    plan = make(guarded)
    assert said() == []
    guarded.approve(plan.id, "ann")
    (problem,) = said()
    assert problem.row.identifier == "plan_awaits_approval"
    assert (problem.many, problem.of) == (5, "deliveries")
    assert problem.startswith("Plan 1 of ann awaits a second person, since 20")
    assert "replay of 5 deliveries, of which nothing is done before." in problem
    assert "(`bridge deadletters plans apply 1`) or rejects it (`bridge deadletters plans stop 1`)" in problem
    assert problem.since is not None
    assert time.time() - problem.since < 60, "since it was applied"
    guarded.approve(plan.id, "bob")
    assert said() == []


def test_of_many_plans_that_await_somebody_the_rest_is_counted(plans, database):
    fill(database)
    for _ in range(7):
        above(plans, 0).approve(make(plans, PlanKind.ARCHIVE).id, "ann")
    with database.reading() as connection:
        found = [*find_awaiting_plans(plan_rows.read_awaiting_plans(connection), time.time())]
    assert len(found) == 6
    assert found[-1].startswith("2 more plans await a second person, the first since 20")


def test_a_plan_of_as_many_letters_as_one_person_may_replay_awaits_nobody(plans, database):
    fill(database)
    for count in (5, None):
        assert above(plans, count).approve(make(plans).id, "ann").state is PlanState.APPLYING


def test_whoever_applies_what_somebody_else_planned_is_the_second_person(guarded):
    assert guarded.approve(make(guarded).id, "bob").approved_by == "bob"


def test_the_planner_cannot_approve_it_by_another_account_or_token(guarded, database):
    tokens = ApiTokens(database)
    tokens.make("nightly", Role.OPERATOR, "ann")
    tokens.make("of a token", Role.OPERATOR, "token nightly")
    tokens.make("of bob", Role.OPERATOR, "bob")
    plan = guarded.make(PlanKind.REPLAY, LetterFilter(), PlanOptions(), "token of a token")
    assert plan.planner == "ann"
    assert guarded.approve(plan.id, "token of a token").state is PlanState.AWAITING
    for name in ("ann", "ann@laptop", "Ann (sso.example.com 1f0c7a3e)", "token nightly", "token of a token"):
        with pytest.raises(PlanRefused, match=r"awaits a second person: you planned it \(as ann\)"):
            guarded.approve(plan.id, name)
    assert guarded.approve(plan.id, "token of bob").state is PlanState.APPLYING


def test_a_plan_that_was_rejected_is_never_done_also_by_a_process_without_the_setting(plans, guarded, database):
    plan = make(guarded)
    guarded.approve(plan.id, "ann")
    assert guarded.stop(plan.id, "bob", "the wrong group").stopped == "rejected by bob: the wrong group"
    for name in ("ann", "bob"):
        for process in (guarded, above(plans, 5), plans):
            with pytest.raises(PlanRefused, match="was rejected by bob: the wrong group, and nobody approved it"):
                process.approve(plan.id, name)
    assert acts(database, plan)[-1] == ("reject", "bob")


def test_its_planner_may_withdraw_it_and_then_makes_a_new_one(plans, guarded, database):
    plan = make(guarded)
    guarded.approve(plan.id, "ann")
    assert guarded.stop(plan.id, "ann").stopped == "stopped by ann"
    assert acts(database, plan)[-1] == ("stop", "ann")
    for process in (guarded, plans):
        with pytest.raises(PlanRefused, match="was stopped by ann, and nobody approved it: make a new plan"):
            process.approve(plan.id, "ann")


@pytest.mark.parametrize("new_database", ["postgresql"], indirect=True)
@pytest.mark.servers
def test_a_decision_on_a_plan_lets_nobody_else_decide_until_it_is_made(guarded, database, monkeypatch):
    """SQLite has one transaction at a time that writes."""
    free = []

    def look(plan, person):
        query = tables.plans.select().where(tables.plans.c.id == plan.id).with_for_update(skip_locked=True)
        with database.writing() as connection:
            free.append(connection.execute(query).all())
        return is_planner(plan, person)

    awaiting = [make(guarded) for _ in range(3)]
    for plan in awaiting:
        guarded.approve(plan.id, "ann")
    seen = PlanProgressReader(database).read_progress(awaiting[0].id)
    monkeypatch.setattr(plan_service, "is_planner", look)
    assert guarded.decide(awaiting[0].id, "bob", PlanApproval(seen.key, seen.left)).approved_by == "bob"
    assert guarded.approve(awaiting[1].id, "bob").approved_by == "bob"
    assert guarded.stop(awaiting[2].id, "bob").stopped == "rejected by bob"
    assert free == [[], [], []]


def test_what_is_approved_is_what_was_planned_and_as_it_was_seen(guarded, database):
    plan, progress = make(guarded), PlanProgressReader(database)
    seen = progress.read_progress(plan.id)
    guarded.decide(plan.id, "ann", PlanApproval(seen.key, seen.left, 50.0, True, "fixed"))
    fill(database)
    with pytest.raises(PlanChanged, match="is awaiting by now"):
        guarded.decide(plan.id, "bob", PlanApproval(seen.key, seen.left))
    seen = progress.read_progress(plan.id)
    assert (seen.left, seen.plan.is_over, seen.taken_up) == (5, False, False)
    with database.writing() as connection:
        (first, *_) = plan_item_rows.read_items(connection, plan.id, 0, 10)
        letter_rows.change_letter_status(
            connection, [first.letter_id or 0], LetterStatus.OPEN, LetterStatus.ARCHIVED, 2**42
        )
    with pytest.raises(PlanChanged, match="taken 1 of these 5 letters"):
        guarded.decide(plan.id, "bob", PlanApproval(seen.key, seen.left))
    found = guarded.decide(plan.id, "bob", PlanApproval(seen.key, 4, 9.0))
    assert (found.state, found.outcomes, found.why) == (PlanState.APPLYING, {"waiting": 5}, "fixed")
    assert (found.options.rate, found.options.canary) == (50.0, True)


def test_a_discard_has_its_ten_seconds_from_the_approval_on(guarded, database):
    plan = make(guarded, PlanKind.DISCARD, why="no such shop")
    seen = PlanProgressReader(database).read_progress(plan.id)
    guarded.decide(plan.id, "ann", PlanApproval(seen.key, seen.left, why="no such shop"))
    seen = PlanProgressReader(database).read_progress(plan.id)
    assert not seen.taken_up
    guarded.decide(plan.id, "bob", PlanApproval(seen.key, seen.left))
    assert PlanProgressReader(database).read_progress(plan.id).taken_up


def test_the_recorder_holds_what_a_process_without_the_setting_let_pass(plans, guarded, database):
    plan = make(plans)
    plans.approve(plan.id, "ann")
    stopping = Event()
    holds = guarded._holds

    def hold(connection, id_):
        stopping.set()
        return holds(connection, id_)

    done = []
    resume_plans(database, lambda id_, who: done.append(id_), stopping, hold)
    assert (done, guarded.one(plan.id).state) == ([], PlanState.AWAITING)
    assert acts(database, plan)[-1] == ("request", "ann")
    # Also for a process without the setting, the planner is not enough any more.
    with pytest.raises(PlanRefused, match="awaits a second person"):
        plans.approve(plan.id, "ann")
    guarded.approve(plan.id, "bob")
    with database.writing() as connection:
        assert not guarded._holds(connection, plan.id)


def test_in_the_foreground_nothing_is_sent_before_the_approval(guarded, monkeypatch):
    monkeypatch.setattr(PlanService, "_check_cluster", lambda self, id_: None)
    applied = []
    monkeypatch.setattr(PlanService, "_apply_plan", lambda self, id_, who, heard: applied.append(id_))
    plan = make(guarded)
    assert guarded.apply(plan.id, "ann").state is PlanState.AWAITING
    assert applied == []
    assert guarded.apply(plan.id, "bob").state is PlanState.APPLYING
    assert applied == [plan.id]


def test_a_plan_that_has_begun_needs_nobody_to_go_on(plans, guarded, database):
    plan = make(plans)
    plans.approve(plan.id, "ann")
    with database.writing() as connection:
        plan_rows.lease_plan(connection, plan.id, "one")
    plans.stop(plan.id, "ann")
    assert guarded.approve(plan.id, "ann").state is PlanState.APPLYING


def test_the_letters_of_a_fixed_group_go_back_once_somebody_else_than_who_marked_it_agrees(guarded, database):
    with database.writing() as connection:
        (group,) = {row.group_id for row in connection.execute(tables.kinds.select()) if row.handler == HANDLER}
        group_rows.mark_fixed(connection, group, "2.0", 1, "ann")
    check_fixed_groups(database, lambda: [{"handlers": [HANDLER], "handler_versions": {HANDLER: "2.0"}}])
    (plan,) = guarded.latest()
    assert (plan.state, plan.by, plan.planner) == (PlanState.APPLYING, "fixed in 2.0", "ann")
    one = above(guarded, 1)
    with database.writing() as connection:
        assert one._holds(connection, plan.id)
    with pytest.raises(PlanRefused, match="awaits a second person"):
        one.approve(plan.id, "ann")
    assert one.approve(plan.id, "bob").state is PlanState.APPLYING


def test_a_plan_of_an_older_version_has_the_planner_that_it_names():
    old = BulkPlan(7, PlanKind.REPLAY, PlanState.PLANNED, "ann", 0, "", {}, PlanOptions(), None, {"waiting": 2})  # type: ignore[arg-type]
    assert is_planner(old, "ANN@laptop")
    assert not is_planner(old, "anna")
    assert [needs_second_person(old, above) for above in (None, 0, 1, 2)] == [False, True, True, False]
