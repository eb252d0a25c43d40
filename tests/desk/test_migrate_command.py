"""`bridge deadletters migrate`, as a user runs it, on both databases."""

from contextlib import closing
from uuid import uuid4

import pytest
from sqlalchemy import make_url, text

from bridge.cli.command_io import FAULTS, NOT_FOUND
from bridge.deadletters.db import schema_migration
from bridge.deadletters.db.database import Database
from bridge.errors import DeskUnavailable
from tests.desk.commands import Commands
from tests.desk.letters import letter
from tests.desk.test_letter_writer import record

NEWEST = schema_migration.find_newest_step()


@pytest.fixture
def desk(database_url, monkeypatch):
    """The commands, on a database without tables."""
    return Commands(monkeypatch, database_url)


@pytest.fixture
def tables_later(database_url):
    """The database by itself."""
    with closing(Database(database_url)) as database:
        yield database


def steps(desk, *words):
    found = desk.given("migrate", *words)
    return found["before"], found["now"]


def test_tables_are_made_once(desk):
    assert f"was brought from no tables to step {NEWEST}" in desk.run("migrate").output
    assert f"is at step {NEWEST} already: nothing to do" in desk.run("migrate").output
    assert steps(desk) == (NEWEST, NEWEST)


def test_that_any_command_would_take_a_step_again_is_said_where_one_is_taken_back(desk):
    desk.run("migrate")
    assert "any command of this version would bring it back" in desk.run("migrate", "--to", "0004").output


@pytest.mark.slow
def test_letters_stay_where_a_step_is_taken_back_and_are_found_when_it_is_taken_again(desk, tables_later):
    database = tables_later
    assert steps(desk) == (None, NEWEST)
    record(database, letter(1), letter(2))
    ids = {each["id"] for each in desk.given("list")}
    assert {each["id"] for each in desk.given("list", "--text", "no")} == ids
    assert steps(desk, "--to", "0001") == (NEWEST, "0001")
    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM letters")).scalar_one() == 2
    assert steps(desk) == ("0001", NEWEST)
    assert {each["id"] for each in desk.given("list", "--text", "no")} == ids


def test_a_step_that_is_none_is_refused_with_those_that_are(desk):
    ended = desk.run("migrate", "--to", "base")
    assert (ended.exit_code, ended.output) == (
        FAULTS,
        f"no step base: this version has {', '.join(schema_migration.list_steps())}.\n",
    )


def test_a_database_of_a_newer_version_is_said_with_both_ways_out(desk, tables_later):
    steps(desk)
    with tables_later.writing() as connection:
        connection.exec_driver_sql("UPDATE desk_version SET version_num = '9999'")
    ended = desk.run("migrate")
    assert ended.exit_code == NOT_FOUND
    assert "is at step 9999, which this version does not know" in ended.output
    assert f"bridge deadletters migrate --to {NEWEST}" in ended.output


@pytest.mark.parametrize("command", [("list",), ("serve",), ("users", "list")], ids=" ".join)
def test_whatever_opens_the_database_of_a_newer_version_says_so_and_what_to_do(desk, tables_later, command):
    steps(desk)
    with tables_later.writing() as connection:
        connection.exec_driver_sql("UPDATE desk_version SET version_num = '9999'")
    ended = desk.run(*command)
    assert ended.exit_code == NOT_FOUND, ended.output
    assert "a newer version of celery-kafka-bridge has been here" in ended.output
    assert f"bridge deadletters migrate --to {NEWEST}" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("new_database", ["postgresql"], indirect=True)
def test_a_user_who_may_make_no_tables_works_with_those_of_their_owner(desk, database_url, tables_later):
    name = f"user_{uuid4().hex}"
    with tables_later.writing() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN")
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with closing(Database(make_url(database_url).set(username=name).render_as_string(hide_password=False))) as theirs:
        with pytest.raises(DeskUnavailable, match="have its owner make the tables: bridge deadletters migrate"):
            theirs.migrate()
        assert steps(desk) == (None, NEWEST)
        with tables_later.writing() as connection:
            connection.exec_driver_sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}")
            connection.exec_driver_sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}")
        theirs.migrate()
        record(theirs, letter(1))
