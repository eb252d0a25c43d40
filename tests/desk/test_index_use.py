"""Nothing that is asked scans the letters, or their words: every statement goes by an index, in both databases."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

from bridge.deadletters.db import (
    group_rows,
    inflight_delivery_rows,
    letter_query,
    letter_rows,
    plan_counts,
    plan_rows,
)
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.letter_rows import LetterEnd
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.inspection.letter_statistics import LetterTotals
from bridge.deadletters.masking.letter_mask import NO_MASKS
from bridge.deadletters.masking.letter_traits import GroupTraits
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterCursor, LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk import filter_model as model

CHARGE = "orders.handlers.charge"
FILTERS = (
    ALL_LETTERS,
    LetterFilter(ids=(1, 2, 3)),
    LetterFilter(handlers=(CHARGE,)),
    LetterFilter(topics=("orders",), reasons=("permanent",), versions=("1.4.1",), origins=("bridge",)),
    LetterFilter(exceptions=("CardDeclined",), statuses=(LetterStatus.OPEN, LetterStatus.RESOLVED)),
    LetterFilter(groups=(1, 2), since=1_050, until=1_100),
    LetterFilter(statuses=(LetterStatus.OPEN,)),
    LetterFilter(since=1_050, until=1_100),
    LetterFilter(statuses=(LetterStatus.OPEN,), since=1_050),
    LetterFilter(key=b"4711"),
    LetterFilter(key=b"4711", handlers=(CHARGE,)),
    LetterFilter(text="card"),
    LetterFilter(text="nowhere"),
    LetterFilter(text="card", groups=(1,), statuses=(LetterStatus.OPEN,)),
    LetterFilter(headers=(("tenant", "blue"),), since=1_050),
    LetterFilter(plans=(3, 50)),
    LetterFilter(died_again=True),
    LetterFilter(died_again=True, plans=(3,), groups=(1, 2)),
    LetterFilter(attempts=3, statuses=(LetterStatus.OPEN,)),
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)], scope="module")
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One that has letters, of each kind; nothing here writes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('scans')}/letters.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    with closing(Database(url)) as database:
        database.migrate()
        with database.writing() as connection:
            model.make(connection, 200, 11)
        yield database


@pytest.fixture
def letters(filled: Database, monkeypatch: pytest.MonkeyPatch) -> LetterLookup:
    for name, small in (("FIRST", 9), ("RARE", 12), ("STRIDE", 17), ("FEW", 60)):
        monkeypatch.setattr(letter_query, name, small)
    monkeypatch.setattr(letter_query, "MOST_LOOKED_THROUGH", 17)
    return LetterLookup(filled)


@contextmanager
def statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """What is executed meanwhile."""
    found: list[tuple[str, Any]] = []

    def seen(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        found.append((statement, parameters))

    event.listen(database._engine, "before_cursor_execute", seen)
    try:
        yield found
    finally:
        event.remove(database._engine, "before_cursor_execute", seen)


def scans(database: Database, executed: list[tuple[str, Any]]) -> list[str]:
    """Of which statements the database's plan scans a large table."""
    with database.reading() as connection:
        if database.dialect == "postgresql":
            # Of a table this small it would scan what it need not.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plans = [(statement, _plan(connection, statement, parameters)) for statement, parameters in executed]
    return [f"{statement}\n{line}" for statement, lines in plans for line in lines if _scans(line)]


def _plan(connection: Connection, statement: str, parameters: Any) -> list[str]:
    if not statement.startswith(("SELECT", "WITH")):
        return []
    explain = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
    return [str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters)]


def _scans(line: str) -> bool:
    line = line.strip()
    # The index of words has a plan behind the colon, or is read from its first row to its last.
    of_sqlite = (line.startswith("SCAN letters") and "INDEX" not in line) or line == "SCAN words VIRTUAL TABLE INDEX 0:"
    return of_sqlite or "Seq Scan on letters" in line or "Seq Scan on words" in line


@pytest.mark.parametrize("asked", FILTERS, ids=lambda asked: str(asked.to_data()))
def test_no_filter_scans_the_letters(letters, asked):
    with statements(letters.database) as executed:
        page = letters.page(asked, 10)
        letters.page(asked, 10, page.next or LetterCursor(1_100, 3))
        letters.count(asked)
        if asked != ALL_LETTERS:
            with letters.database.reading() as connection:
                connection.execute(select_matching_letters(asked)).all()
    assert len(executed) > 3
    assert scans(letters.database, executed) == []


def test_neither_groups_nor_totals_nor_a_letter_scan_the_letters(letters):
    database = letters.database
    with statements(database) as executed:
        FailureGroups(database).all(LetterFilter(handlers=(CHARGE,)))
        FailureGroups(database).one(1)
        FailureGroups(database).read_groups([each.id for each in FailureGroups(database).ranked()])
        FailureGroups(database).urgent()
        LetterTotals(database).stats()
        LetterTotals(database).counted()
        letters.one(1)
        letters.at("orders", 0, 1)
        GroupTraits(database, NO_MASKS).find_traits(FailureGroups(database).one(1))
    assert scans(database, executed) == []


def test_neither_what_is_known_beside_groups_nor_of_plans_scans_the_letters(letters):
    database = letters.database
    with statements(database) as executed, database.reading() as connection:
        group_rows.find_plans_of_groups(connection, [1, 2, 3])
        group_rows.count_died_again(connection, [1, 2, 3])
        group_rows.count_by_version(connection, 1)
        plan_rows.find_changed_letters(connection, 1, 1_050)
        plan_rows.read_applying_plans(connection)
        plan_rows.read_latest_plans(connection, 50)
        plan_counts.read_wave_states(connection, 1)
        plan_counts.read_dead_letters(connection, 1, 20)
    assert len(executed) > 7
    assert scans(database, executed) == []


def test_which_letters_died_again_is_found_by_the_index_that_has_these_alone(letters):
    database = letters.database
    with statements(database) as executed, database.reading() as connection:
        group_rows.count_died_again(connection, [1, 2, 3])
    with database.reading() as connection:
        if database.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        assert "ix_letters_again" in " ".join(_plan(connection, *executed[-1]))


def test_what_others_have_taken_of_a_plan_is_found_by_when_letters_changed(letters):
    database = letters.database
    with statements(database) as executed, database.reading() as connection:
        plan_rows.find_changed_letters(connection, 1, 1_050)
    with database.reading() as connection:
        if database.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        assert "ix_letters_ended" in " ".join(_plan(connection, *executed[-1]))


def test_the_letters_that_ended_last_are_found_by_when_letters_changed(letters):
    database = letters.database
    with statements(database) as executed, database.reading() as connection:
        letter_rows.find_last_ended_letters(connection, LetterStatus.DISCARDED, 1_050, LetterEnd(1_100, 3), 10)
    with database.reading() as connection:
        if database.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        assert "ix_letters_ended" in " ".join(_plan(connection, *executed[-1]))


def test_what_other_plans_have_under_way_is_found_by_the_index_that_has_it_alone(letters):
    database = letters.database
    with statements(database) as executed, database.reading() as connection:
        inflight_delivery_rows.find_deliveries_elsewhere(connection, 1, ["orders-0-1:charge", "orders-0-2:charge"])
    with database.reading() as connection:
        if database.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        assert "ix_items_place" in " ".join(_plan(connection, *executed[-1]))


@pytest.mark.parametrize(
    "asked",
    [
        LetterFilter(key=b"4711", statuses=(LetterStatus.OPEN,)),
        LetterFilter(key=b"4711", handlers=(CHARGE,), statuses=(LetterStatus.OPEN,)),
        LetterFilter(handlers=(CHARGE,), statuses=(LetterStatus.OPEN,)),
        LetterFilter(text="nowhere", statuses=(LetterStatus.OPEN,)),
        LetterFilter(text="card", topics=("orders",), since=1_050),
    ],
    ids=lambda asked: str(asked.to_data()),
)
def test_of_letters_that_are_found_sqlite_asks_no_index_for_all_that_stand_alike(letters, asked):
    if letters.database.dialect != "sqlite":
        pytest.skip("PostgreSQL knows how many stand alike")
    with statements(letters.database) as executed:
        letters.newer(asked, 10, LetterCursor(1_000, 1))
        letters.page(asked, 10)
        letters.count(asked)
    by_id = [each for each in executed if "letters.id IN (" in each[0] and "SELECT words.rowid" not in each[0]]
    by_word = [each for each in executed if "SELECT words.rowid" in each[0] and "FROM letters" in each[0]]
    assert by_id
    with letters.database.reading() as connection:
        lines = [line for each in (*by_id, *by_word) for line in _plan(connection, *each) if " letters " in line]
    assert {line for line in lines if "USING INTEGER PRIMARY KEY" not in line} == set()


@pytest.mark.parametrize("statement", ["SELECT id FROM letters WHERE runs = 3", "SELECT lexemes FROM words"])
def test_a_scan_would_be_seen(letters, statement):
    with statements(letters.database) as executed, letters.database.reading() as connection:
        connection.exec_driver_sql(statement).all()
    assert len(scans(letters.database, executed)) == 1
