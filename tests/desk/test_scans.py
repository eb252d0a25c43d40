"""Nothing that is asked scans the letters, or their words: every statement goes by an index, in both databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

from bridge.deadletters.letters.filters import EVERYTHING, Cursor, Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.groups import Groups
from bridge.deadletters.questions.letters import Letters
from bridge.deadletters.questions.totals import Totals
from bridge.deadletters.store import counting, pages
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.matching import matching
from tests.desk import asked_model as model

CHARGE = "orders.handlers.charge"
FILTERS = (
    EVERYTHING,
    Filter(ids=(1, 2, 3)),
    Filter(handlers=(CHARGE,)),
    Filter(topics=("orders",), reasons=("permanent",), versions=("1.4.1",), origins=("bridge",)),
    Filter(exceptions=("CardDeclined",), statuses=(Status.OPEN, Status.RESOLVED)),
    Filter(groups=(1, 2), since=1_050, until=1_100),
    Filter(statuses=(Status.OPEN,)),
    Filter(since=1_050, until=1_100),
    Filter(statuses=(Status.OPEN,), since=1_050),
    Filter(key=b"4711"),
    Filter(key=b"4711", handlers=(CHARGE,)),
    Filter(text="card"),
    Filter(text="nowhere"),
    Filter(text="card", groups=(1,), statuses=(Status.OPEN,)),
    Filter(headers=(("tenant", "blue"),), since=1_050),
)


@pytest.fixture
def letters(database: Database, monkeypatch: pytest.MonkeyPatch) -> Letters:
    for name, small in (("FIRST", 9), ("RARE", 12), ("STRIDE", 17), ("FEW", 60)):
        monkeypatch.setattr(pages, name, small)
    monkeypatch.setattr(counting, "AMONG", 17)
    with database.writing() as connection:
        model.make(connection, 200, 11)
    return Letters(database)


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
        letters.page(asked, 10, page.next or Cursor(1_100, 3))
        letters.count(asked)
        if asked != EVERYTHING:
            with letters.database.reading() as connection:
                connection.execute(matching(asked)).all()
    assert len(executed) > 3
    assert scans(letters.database, executed) == []


def test_neither_groups_nor_totals_nor_a_letter_scan_the_letters(letters):
    database = letters.database
    with statements(database) as executed:
        Groups(database).all(Filter(handlers=(CHARGE,)))
        Groups(database).one(1)
        Totals(database).stats()
        letters.one(1)
        letters.at("orders", 0, 1)
    assert scans(database, executed) == []


@pytest.mark.parametrize("statement", ["SELECT id FROM letters WHERE runs = 3", "SELECT lexemes FROM words"])
def test_a_scan_would_be_seen(letters, statement):
    with statements(letters.database) as executed, letters.database.reading() as connection:
        connection.exec_driver_sql(statement).all()
    assert len(scans(letters.database, executed)) == 1
