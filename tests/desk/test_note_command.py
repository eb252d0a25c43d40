"""`bridge deadletters note`, as a user runs it, on both databases."""

import pytest

from bridge.cli.command_io import FAULTS
from tests.desk.commands import Commands
from tests.desk.letters import letter
from tests.desk.test_letter_writer import record


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """Two letters of one group."""
    record(database, letter(1), letter(2))
    return Commands(monkeypatch, database_url)


def notes(desk, letter_id):
    return [(each["what"], each["by"], each["said"]) for each in desk.given("show", letter_id)["trail"]]


def test_a_note_stands_with_its_letters_with_who_and_when(desk):
    assert desk.run("note", 1, 2, "-m", "the bank has these", "--by", "ann").output == "noted on 2 letters\n"
    assert notes(desk, 1) == notes(desk, 2) == [("note", "ann", "the bank has these")]
    assert "note by ann: the bank has these" in desk.run("show", 1).output


def test_a_note_on_a_group_stands_with_each_of_its_letters(desk):
    (group,) = desk.given("groups")
    assert desk.run("note", "--group", group["id"], "-m", "see ticket 17", "--by", "ann").exit_code == 0
    assert notes(desk, 1) == notes(desk, 2) == [("note", "ann", "see ticket 17")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((1, 99, "-m", "x"), "no dead letter 99: nothing was noted"),
        (("--group", 99, "-m", "x"), "no group 99"),
        (("-m", "x"), "name letters, or a group"),
        ((1, "--group", 1, "-m", "x"), "name letters, or a group"),
    ],
)
def test_what_is_not_there_is_said_and_nothing_is_noted(desk, words, said):
    ended = desk.run("note", *words)
    assert ended.exit_code == FAULTS
    assert said in ended.output
    assert notes(desk, 1) == []


def test_a_note_says_something(desk):
    assert desk.run("note", 1, "-m", " ").exit_code == 2
