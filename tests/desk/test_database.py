"""The desk's database: how it is made, brought to a step, and what it says when it does not answer."""

import sqlite3
import stat
import threading
import time
from contextlib import closing

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select, text

from bridge.deadletters.db import audit_rows, plan_item_rows, plan_rows, schema_migration
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.postgresql_engine import CONNECT_WITHIN, PatientConnection
from bridge.deadletters.db.table_definitions import letters, metadata
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import DeskDatabaseNewer, DeskUnavailable
from tests.desk import filter_model as model
from tests.unit.test_imports import ROOT


def schema_differences(connection):
    """How the tables differ from what this version declares; the word index differs by database."""
    options = {
        "version_table": schema_migration.VERSION_TABLE,
        "include_name": lambda name, kind, _: kind != "table" or name is None or not name.startswith("words"),
    }
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def test_an_empty_database_gets_the_tables_that_this_version_works_with(database):
    with database.reading() as connection:
        assert schema_migration.read_step(connection) == schema_migration.find_newest_step()
        assert schema_differences(connection) == []


def test_the_files_of_the_steps_are_numbered_as_alembic_runs_them():
    scripts = ScriptDirectory(str(ROOT / "bridge" / "deadletters" / "db" / "migrations")).walk_revisions()
    assert [script.revision for script in scripts][::-1] == schema_migration.list_steps()


def test_a_database_that_has_its_tables_is_left_as_it_is(database):
    database.migrate()
    with database.reading() as connection:
        assert schema_differences(connection) == []


def test_a_postgresql_that_freezes_is_given_up_also_by_connections_that_were_open(postgres_server):
    with closing(Database(postgres_server.new_database())) as there:
        with there.reading() as connection:
            assert connection.execute(select(1)).scalar_one() == 1
        postgres_server.freeze()
        begun = time.monotonic()
        try:
            with pytest.raises(DeskUnavailable, match=r"timeout.*start it or fix the network"), there.reading():
                pass
        finally:
            postgres_server.thaw()
        assert time.monotonic() - begun < 3 * CONNECT_WITHIN
        with there.reading() as connection:
            assert connection.execute(select(1)).scalar_one() == 1


def _freeze_and_ask(server, there):
    with there.reading() as connection:
        server.freeze()
        connection.execute(select(1))


def test_a_postgresql_that_freezes_in_the_midst_is_given_up_when_it_had_to_give_up_itself(postgres_server, monkeypatch):
    monkeypatch.setattr(PatientConnection, "patience", 1.0)
    with closing(Database(postgres_server.new_database())) as there:
        try:
            with pytest.raises(DeskUnavailable, match=r"no answer within 1.0 s; start it"):
                _freeze_and_ask(postgres_server, there)
        finally:
            postgres_server.thaw()
        with there.reading() as connection:
            assert connection.execute(select(1)).scalar_one() == 1


def test_a_postgresql_that_answers_on_and_on_is_waited_for(postgres_server, monkeypatch):
    monkeypatch.setattr(PatientConnection, "patience", 1.0)
    with closing(Database(postgres_server.new_database())) as there, there.writing() as connection:
        connection.execute(text("CREATE TABLE slow (number int)"))
        add = text("INSERT INTO slow SELECT :number FROM (SELECT pg_sleep(0.002)) AS waited")
        begun = time.monotonic()
        connection.execute(add, [{"number": number} for number in range(1_500)])
        assert time.monotonic() - begun > 2
        assert connection.execute(text("SELECT count(*) FROM slow")).scalar_one() == 1_500


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_postgresql_that_cannot_keep_every_text_is_refused_with_what_to_do(postgres_server, encoding):
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    there = postgres_server.url.replace("/postgres", f"/{name}")
    with (
        closing(Database(there)) as other,
        pytest.raises(DeskUnavailable, match=f"{encoding}.*createdb --encoding=UTF8"),
    ):
        other.migrate()


def test_all_steps_can_be_taken_back_and_taken_again(database):
    with database.writing() as connection:
        schema_migration.migrate_tables(connection, "base")
    with database.reading() as connection:
        assert schema_migration.read_step(connection) is None
    database.migrate()
    with database.reading() as connection:
        assert schema_differences(connection) == []


def test_a_step_taken_back_and_taken_again_leaves_what_people_have(database):
    with database.writing() as connection:
        model.make(connection, 60, 7)
        first = connection.execute(select(letters.c.id).limit(1)).scalar_one()
        audit_rows.write_entry(connection, 1, "ann", "note", "the bank's ticket 4711", letter_id=first)
        plan, _ = plan_rows.add_plan(
            connection, PlanKind.REPLAY, "ann", "", LetterFilter().to_data(), PlanOptions(canary=True)
        )
        plan_item_rows.freeze_letters(connection, plan, select_matching_letters(LetterFilter()), canary=True)
    before = everything(database)
    with database.writing() as connection:
        schema_migration.migrate_tables(connection, "0001")
    database.migrate()
    assert everything(database) == before
    assert before["letters"], before["items"]


def everything(database):
    """All rows of all tables."""
    with database.reading() as connection:
        rows = {
            table.name: connection.execute(select(table)).all()
            for table in metadata.sorted_tables
            if table.name != schema_migration.VERSION_TABLE
        }
    return {name: sorted(map(repr, found)) for name, found in rows.items()}


def test_processes_that_start_together_make_the_tables_once(database_url):
    failed = []

    def begin() -> None:
        try:
            database = Database(database_url)
            database.migrate()
            database.close()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_start_waits_for_the_process_that_makes_the_file(tmp_path, monkeypatch):
    file = tmp_path / "desk.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as first:
        first.execute("BEGIN IMMEDIATE")
        first.execute("CREATE TABLE made (at)")
        monkeypatch.setattr(time, "sleep", lambda _: first.execute("COMMIT"))
        Database(f"sqlite:///{file}").migrate()


def test_a_database_of_a_newer_version_is_refused_with_what_to_do(database):
    with database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema_migration.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(DeskDatabaseNewer, match="newer version of celery-kafka-bridge"):
        database.migrate()


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://me:s3cret@127.0.0.1:1/letters", "no address: s3cret", "mysql://me:s3cret@h/d"),
        # With what stands in passwords that are not URL-encoded.
        *("postgresql://me:p@s3cret@h/d", "postgresql://me:p@h:s3cret@h/d", "postgresql://me:p@h/s3cret@h/d"),
        *("postgresql://127.0.0.1:1/d?user=me&password=s3cret", "postgresql://127.0.0.1:1/d?sslpassword=s3cret"),
    ],
)
def test_what_is_said_of_a_database_has_no_password(url):
    with pytest.raises(DeskUnavailable) as refused:
        Database(url).migrate()
    assert "DEADLETTERS_DATABASE_URL" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://me@127.0.0.1/letters", "postgresql+psycopg://me@127.0.0.1/letters"),
        ("postgres://me:s3cret@127.0.0.1/letters", "postgresql+psycopg://me:***@127.0.0.1/letters"),
        ("sqlite:///desk.db", "sqlite:///desk.db"),
    ],
)
def test_a_database_is_named_by_its_address(url, wanted):
    assert Database(url).name == wanted


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_database_in_memory_would_be_gone_with_its_process_and_is_refused(url):
    with pytest.raises(DeskUnavailable, match="in memory"):
        Database(url)


def test_a_file_that_is_something_else_is_said(tmp_path):
    file = tmp_path / "letters.txt"
    file.write_text("dear customer, " * 100)
    with pytest.raises(DeskUnavailable, match="name another"):
        Database(f"sqlite:///{file}").migrate()


def test_a_folder_that_is_missing_is_said_with_what_to_do(tmp_path):
    with pytest.raises(DeskUnavailable, match="its folder must exist"):
        Database(f"sqlite:///{tmp_path}/missing/letters.db").migrate()


def test_a_database_file_is_its_owner_s_and_nobody_else_reads_one_that_is_there(tmp_path):
    def mode(file):
        return stat.S_IMODE(file.stat().st_mode)

    file = tmp_path / "desk.db"
    made = Database(f"sqlite:///{file}")
    made.migrate()
    assert [mode(each) for each in tmp_path.iterdir()] == [0o600] * len(list(tmp_path.iterdir()))
    made.close()
    for before, then in ((0o644, 0o640), (0o664, 0o660), (0o600, 0o600)):
        file.chmod(before)
        opened = Database(f"sqlite:///{file}")
        assert opened.step
        assert mode(file) == then
        opened.close()
