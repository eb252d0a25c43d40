"""`bridge deadletters list`, `show`, `groups` and `stats`, as a user runs them, on both databases."""

import json

import pytest

from bridge.cli.command_io import FAULTS, NOT_FOUND
from bridge.deadletters.db import audit_rows, letter_rows
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk.commands import Commands
from tests.desk.letters import letter

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/orders/handlers.py", line 12, in charge
    bank.pay(order)
  File "/usr/lib/python3.11/site-packages/requests/api.py", line 59, in post
    raise ConnectionError(host)
ConnectionError: bank:443
"""
LIST = {
    *("id", "handler", "topic", "partition", "offset", "key", "reason", "error_class", "error_message", "status"),
    *("attempts", "failed_at", "group", "version"),
}


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """Three letters: of two handlers of one record, and of another record."""
    found = [
        letter(1234, key=b"4711", value=b'{"id": 17, "amount": 5.10}', traceback=TRACEBACK, failed_at=2_000_000),
        letter(1234, handler="orders.handlers.notify", offset=1, error_class="KeyError", failed_at=1_000_000),
        letter(1235, version="1.4.1", value=b"\x00\xff\xfe", failed_at=3_000_000, reason="permanent"),
    ]
    with database.writing() as connection:
        LetterWriter(connection, IdCache(), 5_000_000, 1_000_000).record(found)
    return Commands(monkeypatch, database_url)


def ids(found):
    return [each["id"] for each in found]


def test_the_list_has_the_contracts_fields_newest_first(desk):
    found = desk.given("list")
    assert ids(found) == [3, 1, 2]
    assert all(each.keys() >= LIST for each in found)
    assert found[1]["key"] == "4711"
    assert found[1]["failed_at"] == "1970-01-01T00:33:20.000+00:00"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_list_says_which_of_the_ids_nobody_knows(desk, words):
    ended = desk.run("list", 2, 77, *words)
    assert "orders.handlers.notify" in ended.stdout
    assert "There is no dead letter 77." in ended.stderr
    assert "There is no dead letter 2." not in ended.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("2", "3"), [3, 2]),
        (("--handler", "orders.handlers.notify"), [2]),
        (("--exception", "KeyError"), [2]),
        (("--reason", "permanent", "--version", "1.4.1"), [3]),
        (("--key", "4711"), [1]),
        (("--since", "1970-01-01T00:30"), [3, 1]),
        (("--status", "archived"), []),
        (("--limit", "1"), [3]),
    ],
)
def test_a_filter_finds_what_it_says(desk, words, wanted):
    assert ids(desk.given("list", *words)) == wanted


def test_the_list_is_a_table_for_people_and_says_how_many_more_there_are(desk):
    lines = desk.run("list", "--limit", "2").output.splitlines()
    assert lines[0].split() == ["id", "failed", "(UTC)", "delivery", "error"]
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-1].startswith("2 of 3; all: --limit 0")
    assert "no dead letter matches" in desk.run("list", "--topic", "none").output


def test_a_letter_is_shown_with_all_that_is_known_of_it(desk):
    page = desk.run("show", 1).output
    assert "letter 1: orders-0-1234:orders.handlers.charge" in page
    assert '  "amount": 5.10' in page.replace("    ", "  ")
    marked = [line for line in page.splitlines() if line.startswith(">")]
    assert marked == ['>   File "/srv/app/orders/handlers.py", line 12, in charge', ">     bank.pay(order)"]
    assert "bridge deadletters replay 1 --wait" in page
    assert "died: exhausted, after 13 attempts" in page


def test_for_a_letter_that_does_not_say_of_which_record_it_is_no_replay_is_proposed(desk, database):
    theirs = {"origin": "confluent", "handler": "", "consumer_group": "", "error_class": "", "topic": "orders"}
    with database.writing() as connection:
        LetterWriter(connection, IdCache(), 20_000, 1_000).record(
            [letter(9, error_message="no rule", offset=9, **theirs)]
        )
    assert "  no rule" in desk.run("list", "--origin", "confluent").output
    page = desk.run("show", "orders-0-9").output
    assert "bridge deadletters replay 4 --to-topic TOPIC" in page
    assert "--wait" not in page
    assert "deadletters edit" not in page


def test_names_between_colons_are_printed_as_kafka_has_them(desk, database):
    theirs = {"handler": "a:id:b", "error_message": "the :key: is gone", "key": b"user:id:42"}
    with database.writing() as connection:
        LetterWriter(connection, IdCache(), 20_000, 1_000).record([letter(9, offset=9, **theirs)])
    listed = "".join(desk.run("list").output.split())
    assert "user:id:42" in listed
    assert "a:id:b" in listed
    assert "the :key: is gone" in desk.run("show", "orders-0-9").output


@pytest.mark.parametrize(
    "named",
    ["orders-0-9999999999999999999999", "orders-9999999999-1", "b\udcff-0-1", "orders-0-1:b\udcff", "9" * 5_000],
)
def test_a_record_that_no_database_can_name_is_a_wrong_argument(desk, named):
    ended = desk.run("show", named)
    assert ended.exit_code == FAULTS
    said = " ".join(ended.output.split())
    assert "database's own log" not in said
    assert repr(named)[1:9] in said


def test_a_letter_is_named_by_its_record_too(desk):
    assert desk.given("show", "orders-0-1235")["id"] == 3
    assert desk.given("show", "orders-0-1234:orders.handlers.notify")["id"] == 2
    several = desk.run("show", "orders-0-1234")
    assert several.exit_code == FAULTS
    assert "has 2 dead letters, name one of them: 1, 2." in several.output


@pytest.mark.parametrize(
    ("named", "said"),
    [("99", "no dead letter 99"), ("orders-0-99", "bridge find"), ("nonsense", "neither an id nor a record")],
)
def test_what_is_not_there_is_said(desk, named, said):
    ended = desk.run("show", named)
    assert ended.exit_code == FAULTS
    assert said in " ".join(ended.output.split())


def test_a_value_is_given_byte_for_byte(desk):
    assert desk.run("show", 3, "--value").stdout_bytes == b"\x00\xff\xfe"
    assert "00 ff fe" in desk.run("show", 3).output


def test_what_people_did_is_on_the_page(desk, database):
    with database.writing() as connection:
        letter_rows.change_letter_status(connection, [1], LetterStatus.OPEN, LetterStatus.DISCARDED, 6_000_000)
        audit_rows.write_entry(connection, 6_000_000, "ann@desk", "discard", "a test's", letter_id=1)
    page = desk.run("show", 1).output
    assert "1970-01-01 01:40:00  discard by ann@desk: a test's" in page
    assert "bridge deadletters replay" not in page


def test_a_database_that_does_not_answer_is_said_with_code_2(monkeypatch, tmp_path):
    desk = Commands(monkeypatch, f"sqlite:///{tmp_path}/missing/letters.db")
    for command in ("list", "groups", "stats", "plans"):
        ended = desk.run(command)
        assert ended.exit_code == NOT_FOUND
        assert "its folder must exist" in ended.output


def test_json_of_nothing_is_an_empty_list(desk):
    assert json.loads(desk.run("list", "--topic", "none", "--json").stdout) == []


def test_what_was_put_aside_says_why_and_how_it_goes_back_if_that_was_a_mistake(desk):
    desk.given("archive", 1, "--why", "a load test's", "--yes")
    page = desk.run("show", 1).output
    assert "archive by" in page
    assert "a load test's" in page
    again = "bridge redrive orders --partition 0 --from 1234 --to 1235 --handler orders.handlers.charge --again --wait"
    assert again in page
    assert "bridge deadletters discard 1 --why" in page


@pytest.mark.parametrize("command", ["list", "groups"])
def test_a_name_that_no_letter_has_is_said_with_the_nearest(desk, command):
    ended = desk.run(command, "--handler", "orders.handlers.chrage")
    assert ended.exit_code == 0
    assert "no dead letter matches" in ended.stdout
    assert "No letter has the handler 'orders.handlers.chrage': is 'orders.handlers.charge' meant?" in ended.stderr


@pytest.mark.parametrize("command", ["list", "groups", "stats", "check"])
def test_where_nothing_was_recorded_yet_that_is_said_with_what_to_do(database, database_url, monkeypatch, command):
    ended = Commands(monkeypatch, database_url).run(command)
    assert "nothing was recorded here yet (sqlite:///" in ended.stderr or "(postgresql" in ended.stderr
    assert "run `bridge deadletters record`" in ended.stderr


def test_a_number_that_no_database_takes_is_no_letter(desk):
    assert desk.run("show", 10**20).exit_code == FAULTS
    assert desk.run("list", 10**20).exit_code == FAULTS


def test_an_empty_key_is_told_from_none(database, database_url, monkeypatch):
    with database.writing() as connection:
        found = [letter(1, key=b"", failed_at=2_000_000), letter(2, key=None, failed_at=1_000_000)]
        LetterWriter(connection, IdCache(), 5_000_000, 1_000_000).record(found)
    desk = Commands(monkeypatch, database_url)
    assert [each["key"] for each in desk.given("list")] == ["", None]
    assert "orders-0-1, key (empty)" in " ".join(desk.run("list").output.split())
    assert desk.run("list").output.count(", key") == 1
    assert "(empty)" in desk.run("show", 1).output
    assert "(empty)" not in desk.run("show", 2).output


def test_who_only_looks_makes_no_file_where_there_is_none_and_says_what_to_do(tmp_path, monkeypatch):
    file = tmp_path / "elsewhere.db"
    commands = Commands(monkeypatch, f"sqlite:///{file}")
    for words in (["groups"], ["list", "--json"], ["stats"], ["show", "1"], ["plans"], ["users"], ["replay", "--yes"]):
        ended = commands.run(*words)
        assert ended.exit_code == NOT_FOUND, words
        assert not ended.stdout
        assert f"no dead letters' database {file}" in ended.stderr
        assert "bridge deadletters record" in ended.stderr
        assert not file.exists()
    assert commands.run("users", "tokens", "make", "nightly", "--role", "viewer").exit_code == 0
    assert commands.run("groups").exit_code == 0
