"""Commands that change many letters: asked for first, refused where nobody can be asked, with codes for scripts."""

import pytest
from celery import Celery

from bridge.cli import command_io
from bridge.cli.command_io import AGAIN, FAULTS, NOT_FOUND, OK
from bridge.deadletters.db import plan_rows
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.desk.commands import Commands
from tests.desk.letters import letter
from tests.desk.test_letter_writer import record


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """Three open letters, of two handlers."""
    record(database, letter(1), letter(2), letter(3, handler="orders.handlers.notify"))
    return Commands(monkeypatch, database_url)


@pytest.fixture
def on_a_terminal(monkeypatch):
    monkeypatch.setattr(command_io, "has_terminal", lambda: True)


@pytest.fixture
def desk_of_charge(database, database_url, monkeypatch):
    """One letter, of a handler that the app has."""
    record(database, letter(1, value=b'{"amount": 1}'))

    def charge(order: object) -> None:
        raise AssertionError("it runs")

    with Celery("shop", set_as_current=False) as app:
        app.conf.update(DEFAULTS)
        declare_handler(app, ("orders",), {"name": "orders.handlers.charge"})(charge)
        yield Commands(monkeypatch, database_url, app)


def statuses(desk):
    return {each["id"]: each["status"] for each in desk.given("list")}


def test_without_a_terminal_and_yes_nothing_is_planned_or_done(desk):
    for words in (("replay",), ("archive", 1), ("discard", 1, "--why", "a test's"), ("plans", "apply", 1)):
        ended = desk.run(*words)
        assert ended.exit_code == NOT_FOUND
        assert "there is no terminal to confirm on" in ended.output
    assert desk.given("plans") == []


def test_archived_by_a_script_they_are_listed_as_that_and_no_longer_as_open(desk):
    found = desk.given("archive", "--handler", "orders.handlers.charge", "--yes", "--by", "ann")
    assert (found["counts"]["letters"], found["outcomes"]) == (2, {"done": 2})
    assert statuses(desk) == {1: "archived", 2: "archived", 3: "open"}
    assert [each["id"] for each in desk.given("list", "--status", "open")] == [3]


def test_every_letter_is_meant_only_where_that_is_said(desk):
    for command in (("archive",), ("discard", "--why", "x")):
        ended = desk.run(*command, "--yes")
        assert ended.exit_code == FAULTS
        assert "name the letters to" in ended.output
    desk.given("archive", "--all", "--yes")
    assert set(statuses(desk).values()) == {"archived"}


def test_ctrl_c_while_it_is_planned_says_that_nothing_was_done_and_where_what_stands_of_it_is(desk, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bridge.deadletters.replay.plan_service.PlanService._count", interrupted)
    for words in (("replay",), ("archive", 1)):
        ended = desk.run(*words, "--yes")
        assert ended.exit_code == 130
        assert "nothing was sent or changed" in ended.output
        assert "bridge deadletters plans" in ended.output
    assert statuses(desk) == {1: "open", 2: "open", 3: "open"}


@pytest.mark.usefixtures("on_a_terminal")
@pytest.mark.parametrize(("answer", "code", "status"), [("y\n", 0, "archived"), ("n\n", FAULTS, "open")])
def test_a_person_sees_what_it_is_about_and_decides(desk, answer, code, status):
    ended = desk.run("archive", "--handler", "orders.handlers.charge", answer=answer)
    assert ended.exit_code == code, ended.output
    assert "orders.handlers.charge: 2 exhausted" in ended.output
    assert "archive 2 letters?" in ended.output
    assert statuses(desk)[1] == status


def test_a_reason_to_discard_says_something(desk):
    assert desk.run("discard", 1, "--why", " ", "--yes").exit_code == 2


def test_a_plan_that_is_over_or_not_there_is_said(desk):
    plan = desk.given("archive", 1, "--yes")["plan"]
    again = desk.run("plans", "apply", plan, "--yes")
    assert again.exit_code == FAULTS
    assert "make a new one" in again.output
    assert desk.run("plans", "show", 99).exit_code == FAULTS
    assert desk.run("plans", "stop", plan).exit_code == FAULTS


def test_a_group_is_marked_as_fixed_and_not(desk):
    (group,) = [each["id"] for each in desk.given("groups", "--handler", "orders.handlers.charge")]
    assert desk.given("fixed", group, "1.4.2", "--by", "ann")["fixed_in"] == "1.4.2"
    assert "fixed in 1.4.2, by ann" in desk.run("groups").output
    assert "no living worker has orders.handlers.charge" in desk.run("fixed", group, "1.4.2").stderr
    assert desk.given("fixed", group, "--undo")["fixed_in"] is None
    assert desk.run("fixed", group).exit_code == FAULTS


def test_a_cause_is_marked_as_fixed_and_not(desk):
    (group,) = desk.given("groups", "--handler", "orders.handlers.charge")
    (cause,) = [each["id"] for each in desk.given("groups", "--group", group["id"])[0]["causes"]]
    (fix,) = desk.given("fixed", group["id"], "1.4.2", "--cause", cause, "--by", "ann")["cause_fixes"]
    assert (fix["cause"], fix["fixed_in"], fix["fixed_by"]) == (cause, "1.4.2", "ann")
    assert f"cause {cause} fixed in 1.4.2, by ann" in desk.run("groups").output
    assert desk.given("fixed", group["id"], "--undo", "--cause", cause)["cause_fixes"] == []
    assert "has no cause x" in desk.run("fixed", group["id"], "1.4.2", "--cause", "x").output


@pytest.mark.parametrize(
    "words",
    [
        ("edit", 1, "--value", '{"amount": 2}'),
        ("replay", 1, "--patch", '[{"op": "replace", "path": "/amount", "value": 2}]'),
    ],
)
def test_how_a_value_changes_is_shown_a_member_a_line(desk_of_charge, words):
    ended = desk_of_charge.run(*words, "--plan")
    assert ended.exit_code == 0, ended.output
    assert '  -  "amount": 1\n  +  "amount": 2\n' in ended.output


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("replay",), "archived"),
        (("replay", "--patch", '[{"op": "remove", "path": "/a"}]'), "resolved"),
        (("discard", "--why", "x"), "discarded"),
    ],
)
def test_what_has_ended_is_not_asked_for_in_vain_and_what_is_open_not_taken_instead(desk, words, status):
    ended = desk.run(*words, "--status", status, "--yes")
    assert ended.exit_code == FAULTS
    assert f"this selects {status}" in ended.output
    assert desk.given("plans") == []


def test_a_replay_of_one_cause_of_a_group_plans_only_its_letters(database, database_url, monkeypatch):
    causes = {1: "1f0c2b3a4d5e", 2: "1f0c2b3a4d5e", 3: "0123456789ab", 4: "unknown"}
    record(database, *(letter(at, cause=cause, error_message=f"no {at}") for at, cause in causes.items()))
    desk = Commands(monkeypatch, database_url)
    (group,) = desk.given("groups", "--group", 1)
    assert [(each["id"], each["message"], each["count"], each["open"]) for each in group["causes"]] == [
        ("1f0c2b3a4d5e", "no 2", 2, 2),
        ("0123456789ab", "no 3", 1, 1),
        ("unknown", "no 4", 1, 1),
    ]
    assert "no 3" in desk.run("groups", "--group", 1).output
    found = desk.given("archive", "--group", 1, "--cause", "0123456789ab", "--yes")
    assert found["counts"]["letters"] == 1
    assert statuses(desk) == {1: "open", 2: "open", 3: "archived", 4: "open"}
    planned = desk.given("replay", "--group", 1, "--cause", "1f0c2b3a4d5e", "--plan")
    assert planned["counts"]["letters"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((1, 77), "There is no dead letter 77."),
        (("--group", 9), "There is no group 9."),
        (("--group", 1, "--cause", "1f0c"), "No letter has the cause '1f0c'"),
        (("--handler", "orders.handlers.chrage"), "is 'orders.handlers.charge' meant?"),
        (("--topic", "oders"), "is 'orders' meant?"),
        (("--reason", "exhaused"), "is 'exhausted' meant?"),
        (("--consumer-group", "brigde"), "is 'bridge' meant?"),
    ],
)
def test_what_is_misspelt_or_not_there_ends_a_command_before_anything_is_planned(desk, words, said):
    ended = desk.run("replay", *words, "--yes")
    assert ended.exit_code == FAULTS
    assert said in ended.output
    assert desk.given("plans") == []


def test_a_letter_that_has_ended_is_said_to_stay(desk):
    desk.given("archive", 1, "--yes")
    ended = desk.run("archive", 1, "--yes")
    assert "letter 1 is archived, and stays so" in ended.stderr
    assert "it has no letter: no open letter matches" in ended.stdout


def test_what_is_done_without_asking_is_said_on_stderr_for_who_reads_the_log(desk):
    assert "orders.handlers.charge: 2 exhausted" in desk.run("archive", "--all", "--yes").stderr


def test_a_plan_that_another_process_applies_is_to_be_asked_for_again(desk, database):
    with database.writing() as connection:
        plan, _ = plan_rows.add_plan(connection, PlanKind.ARCHIVE, "ann", "", {}, PlanOptions())
        assert plan_rows.lease_plan(connection, plan, "another")
    ended = desk.run("plans", "apply", plan, "--yes")
    assert ended.exit_code == AGAIN
    assert "is applied by another process" in ended.output


def test_a_large_plan_ends_its_command_with_75_and_a_colleague_applies_it(database, database_url, monkeypatch):
    record(database, letter(1), letter(2), letter(3))
    desk = Commands(monkeypatch, database_url, DEADLETTERS_APPROVAL_ABOVE=2)
    ended = desk.run("archive", "--all", "--yes", "--by", "ann")
    assert ended.exit_code == AGAIN
    assert "it awaits a second person, not ann; to approve it: bridge deadletters plans apply 1; to reject it: " in (
        " ".join(ended.stdout.split())
    )
    assert desk.run("plans", "show", 1).exit_code == AGAIN
    for words in (("--by", "ann@laptop"), ("--by", "ann", "--background")):
        refused = desk.run("plans", "apply", 1, "--yes", *words)
        assert refused.exit_code == FAULTS
        assert "somebody else approves or rejects it" in refused.output
    assert set(statuses(desk).values()) == {"open"}
    assert desk.run("plans", "apply", 1, "--yes", "--by", "bob").exit_code == OK
    assert set(statuses(desk).values()) == {"archived"}
    (plan,) = desk.given("plans")
    assert (plan["planner"], plan["approved_by"]) == ("ann", "bob")
    assert "approved by bob" in desk.run("plans", "show", 1).output
