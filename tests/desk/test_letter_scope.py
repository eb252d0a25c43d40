"""The scope of an account: a pattern means the same in Python and in both databases; what nobody decided is closed."""

import pytest
from sqlalchemy import delete, insert, select, text, update

from bridge.deadletters.accounts.user_account import Role, Users
from bridge.deadletters.db import row_scope
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.db.row_scope import RowScope
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope
from bridge.errors import DeskUnavailable, OutsideScope, ScopeFault
from tests.desk.letters import letter

NAMES = (
    "orders",
    "Orders",
    "orders.eu",
    "orders_eu",
    "ordersXeu",
    "a%b",
    "aXb",
    "a[b]",
    "ab",
    "a?b",
    "a\\b",
    "*",
    "ö.é",
)
PATTERNS = (
    "orders",
    "orders*",
    "*eu",
    "o*s*u",
    "orders_eu",
    "orders.eu",
    "a%b",
    "a[b]",
    "a?b",
    "a\\b",
    "*",
    "ö*",
    "O*",
)
#: Tables that are about all letters, or about the console's webhooks: they are closed to accounts with a scope.
CLOSED = {"webhooks", "webhook_deliveries", "alarms"}


@pytest.fixture
def recorded(database):
    """A letter of each name as its topic, and one of each as its consumer group."""
    with database.writing() as connection:
        made = [letter(at, consumer_group=name) for at, name in enumerate(NAMES)]
        by_topic = [letter(100 + at) for at, _ in enumerate(NAMES)]
        for each, name in zip(by_topic, NAMES, strict=True):
            object.__setattr__(each, "kind", each.kind._replace(topic=name, consumer_group="all"))
        LetterWriter(connection, IdCache(), 1, 1_000).record([*made, *by_topic])
    return database


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_same_names_in_python_and_in_the_database(recorded, pattern):
    for field, column, other in (
        ("topics", tables.kinds.c.topic, tables.kinds.c.consumer_group == "all"),
        ("consumer_groups", tables.kinds.c.consumer_group, tables.kinds.c.topic == "orders"),
    ):
        scope = LetterScope(**{field: (pattern,)})
        covered = {name for name in NAMES if scope.covers(name, name)}
        with recorded.for_scope(RowScope(scope, "ann")).reading() as connection:
            found = set(connection.execute(select(column).where(other)).scalars())
        assert found - {"all"} == covered, field


def test_a_letter_must_be_of_a_covered_topic_and_of_a_covered_consumer_group():
    scope = LetterScope(("payments.*", "refunds"), ("eu", "us"))
    assert scope.covers("payments.cards", "eu")
    assert scope.covers("refunds", "us")
    assert not scope.covers("refunds", "asia")
    assert not scope.covers("payments", "eu")
    assert EVERYTHING.covers("anything", "anybody")


def test_a_scope_that_is_given_and_empty_is_refused_and_never_everything():
    for empty in ([""], [" , "], ["\n"]):
        with pytest.raises(ScopeFault, match="No topics are named"):
            LetterScope.parse(empty)
    with pytest.raises(ScopeFault, match="No consumer groups are named"):
        LetterScope.parse(["orders"], [""])
    with pytest.raises(ScopeFault, match="of 50 at most"):
        LetterScope.parse([",".join(map(str, range(51)))])


def test_a_star_alone_leaves_nothing_out():
    assert not LetterScope(("*",))
    assert LetterScope(("*", "orders"), ("a",))
    assert LetterScope.parse(["payments.*, refunds", "refunds"]).topics == ("payments.*", "refunds")
    assert LetterScope.from_columns(**LetterScope(("a", "b"), ("c",)).stored) == LetterScope(("a", "b"), ("c",))


def test_every_table_has_a_rule_or_is_closed(database):
    scope = database.for_scope(RowScope(LetterScope(("orders",)), "ann"))
    for table in tables.metadata.tables.values():
        if table.name not in CLOSED:
            with scope.reading() as connection:
                connection.execute(select(table)).all()
            continue
        for statement in (select(table), insert(table), update(table).values(at=1), delete(table)):
            with pytest.raises(OutsideScope), scope.writing() as connection:
                connection.execute(statement)
    with pytest.raises(OutsideScope), scope.reading() as connection:
        connection.execute(text("SELECT * FROM letters"))


def test_a_letter_without_an_edit_is_found_beside_the_edits_of_others(recorded):
    edited = tables.letters.outerjoin(tables.edits, tables.edits.c.letter_id == tables.letters.c.id)
    with recorded.for_scope(RowScope(LetterScope(("orders",), ("ab",)), "ann")).reading() as connection:
        assert len(connection.execute(select(tables.letters.c.id, tables.edits.c.id).select_from(edited)).all()) == 1


def test_a_change_touches_covered_rows_alone(recorded):
    scope = RowScope(LetterScope((), ("ab",)), "ann")
    with recorded.for_scope(scope).writing() as connection:
        assert connection.execute(update(tables.letters).values(runs=99)).rowcount == 1
        assert connection.execute(delete(tables.hours)).rowcount == 1
        # Others' letters are of the same failure group.
        assert connection.execute(update(tables.groups).values(fixed_in="9")).rowcount == 0
        with pytest.raises(OutsideScope, match="also has letters outside"):
            row_scope.require_own_group(connection, 1)


def test_a_database_with_a_scope_has_no_connections_apart(database):
    with pytest.raises(ValueError, match="would read all rows"):
        database.for_scope(RowScope(LetterScope(("orders",)), "ann")).apart()


def test_an_older_database_gets_accounts_that_see_everything_and_is_not_taken_back_while_one_has_a_scope(database):
    users = Users(database)
    database.migrate("0011")
    with database.writing() as connection:
        row = {"name": "ann", "role": "viewer", "password": "x", "at": 1, "by": "adm"}
        connection.execute(
            text(
                "INSERT INTO users (name, role, password, at, by) VALUES (:name, :role, :password, :at, :by)"
            ).bindparams(**row)
        )
    database.migrate()
    assert [each.scope for each in users.all()] == [EVERYTHING]
    users.give_scope("ann", LetterScope(("orders",)), "adm")
    with pytest.raises((ScopeFault, DeskUnavailable), match="ann"):
        database.migrate("0011")
    assert [each.scope for each in users.all()] == [LetterScope(("orders",))]
    users.give_scope("ann", EVERYTHING, "adm")
    database.migrate("0011")
    database.migrate()
    assert [(each.name, each.role) for each in users.all()] == [("ann", str(Role.VIEWER))]
