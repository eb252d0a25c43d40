"""`bridge deadletters simulate`, as a user runs it, on both databases."""

import pytest

from bridge.cli.command_io import FAULTS
from bridge.deadletters.db import letter_rows
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.inspection import policy_trial
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import LedgerUnavailable
from bridge.handler_routes import find_routes
from tasks import app, handler
from tests.desk.commands import Commands
from tests.desk.letters import letter

NAME = "tests.desk.simulated"


@handler("orders", name=NAME, retry_delays=(10, 20, 40))
def simulated(order):
    """It is never run."""


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """Four letters of the handler, one of them replayed with success half a minute later; and one of another."""
    found = [
        letter(1, handler=NAME, error_class="ConnectionError", runs=4, first_failed_at=0, failed_at=70_000),
        letter(2, handler=NAME, error_class="ConnectionError", runs=4, first_failed_at=0, failed_at=70_000),
        letter(3, handler=NAME, error_class="gone.errors.Declined", runs=1, reason="permanent"),
        letter(4, handler=NAME, reason="poison"),
        letter(5, handler="orders.handlers.notify"),
    ]
    with database.writing() as connection:
        LetterWriter(connection, IdCache(), 80_000, 1_000).record(found)
        letter_rows.change_letter_status(connection, [1], LetterStatus.OPEN, LetterStatus.RESOLVED, 100_000)
    return Commands(monkeypatch, database_url, app, find_routes(app)[0])


def test_a_longer_patience_is_told_with_what_it_costs_and_what_it_had_saved(desk):
    found = desk.given("simulate", NAME, "retry_delays=10,20,40,80")
    assert found["policy"]["max_retries"] == 4
    assert found["letters"] == 3
    assert found["before"] == {"ends": {"dead after retries": 2, "dead at once": 1}, "attempts": 9}
    # A wait of 60 s or more is as long as its retry topic's.
    assert found["after"]["ends"] == {"dead after retries": 3}
    assert found["after"]["attempts"] == 15
    assert found["evidence"] == {"fault_gone": 2, "saved": 2, "attempts": 15}
    assert (found["not_judged"], found["unknown_classes"]) == ({"poison": 1}, {"gone.errors.Declined": 1})


def test_without_a_change_the_codes_policy_is_tried(desk):
    found = desk.given("simulate", NAME)
    assert found["changed"] == {}
    assert (found["after"]["attempts"], found["evidence"]["saved"]) == (12, 0)


def test_what_a_person_has_changed_of_the_policy_is_in_force_and_options_go_over_it(desk, monkeypatch):
    monkeypatch.setattr(
        policy_trial, "read_policy_changes", lambda settings, handler: {"retry_delays": [10], "give_up_after": 90}
    )
    found = desk.given("simulate", NAME)
    assert (found["in_force"], found["policy"]["retry_delays"]) == ({"retry_delays": [10], "give_up_after": 90}, [10])
    assert found["after"]["attempts"] == 6
    assert desk.given("simulate", NAME, "retry_delays=10,20,40,80", "give_up_after=none")["after"]["attempts"] == 15
    said = " ".join(desk.run("simulate", NAME).output.split())
    assert "The policy in force is the code's with retry_delays=10 give_up_after=90" in said
    # As in a worker: what its code cannot take is not in force.
    monkeypatch.setattr(policy_trial, "read_policy_changes", lambda settings, handler: {"gone": 1})
    assert desk.given("simulate", NAME)["after"]["attempts"] == 12


def test_where_it_cannot_be_asked_what_is_in_force_that_is_said(desk, monkeypatch):
    def silent(settings, handler):
        raise LedgerUnavailable("Redis does not answer.")

    monkeypatch.setattr(policy_trial, "read_policy_changes", silent)
    assert desk.given("simulate", NAME)["in_force_unknown"] == "Redis does not answer."
    assert "are unknown: Redis does not answer." in " ".join(desk.run("simulate", NAME).output.split())


def test_a_filter_says_which_letters(desk):
    assert desk.given("simulate", NAME, "--exception", "ConnectionError")["letters"] == 2


def test_it_is_a_table_and_sentences_for_people(desk):
    page = desk.run("simulate", NAME, "dead_letter_for=ConnectionError").output
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert lines[0] == f"3 letters of {NAME}, if each attempt had failed like the last one"
    assert "dead after retries 2 1" in lines
    assert "dead at once 1 2" in lines
    assert "attempts in all 9 6" in lines
    assert "1 letter died of what no policy decides on: poison." in lines
    assert any(line.startswith("gone.errors.Declined is not imported here") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((NAME, "max_retry=3"), "max_retries"),
        (("tests.desk.simulate",), f"is '{NAME}' meant?"),
        ((NAME, "max_retries=x"), "whole number"),
    ],
)
def test_what_cannot_be_tried_is_said(desk, words, said):
    ended = desk.run("simulate", *words)
    assert ended.exit_code == FAULTS
    assert said in ended.output
