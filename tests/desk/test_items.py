"""What is promised of a plan's deliveries as they are sent: where each lies, and that a large plan costs no more."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import event, select

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState, Options, What
from bridge.deadletters.store import contents, items, lanes, plans, redriven, spots, statuses
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.schema import items as table
from bridge.deadletters.store.spots import Sent, Spot
from tests.desk.rows import kind, letter


def claimed(connection: Connection, count: int) -> int:
    """A plan that has claimed all of its deliveries."""
    plan_id, _ = plans.add(connection, What.REDRIVE, "ann", "", {}, Options())
    places = [Item(number, None, f"orders-0-{number}:orders.handlers.charge", 0) for number in range(1, count + 1)]
    items.add(connection, plan_id, places, canary=False)
    items.claim(connection, plan_id, {each.position: Spot("orders.replay", 0, 0) for each in places}, 1)
    return plan_id


def test_each_delivery_has_the_number_and_the_place_that_it_was_sent_with_and_what_has_ended_stays_so(database):
    with database.writing() as connection:
        other, plan_id = claimed(connection, 7), claimed(connection, 7)
        items.end(connection, plan_id, {2: "nobody wants it"}, ItemState.REFUSED, 3)
        sent = [
            Sent(6, 2, Spot("orders.replay", 3, 14)),
            Sent(1, 1, Spot("orders.replay", 0, 10)),
            Sent(2, 1, Spot("orders.replay", 1, 2**40)),
            Sent(3, 7, Spot("orders.replay", 0, 12)),
            Sent(4, 1, Spot("mails.replay", 0, 0)),
        ]
        spots.sent(connection, plan_id, sent, 5)
        assert rows(connection, plan_id) == [
            (1, "sent", 1, "orders.replay", 0, 10, 5),
            (2, "refused", 1, "orders.replay", 1, 2**40, 5),
            (3, "sent", 7, "orders.replay", 0, 12, 5),
            (4, "sent", 1, "mails.replay", 0, 0, 5),
            (5, "claimed", None, "orders.replay", 0, 0, 1),
            (6, "sent", 2, "orders.replay", 3, 14, 5),
            (7, "claimed", None, "orders.replay", 0, 0, 1),
        ]
        assert {row[1] for row in rows(connection, other)} == {"claimed"}


def test_however_large_a_plan_is_a_batch_of_it_is_found_by_its_positions_or_its_letters(database):
    with database.writing() as connection:
        plan_id = claimed(connection, 3_000)
        at = dict.fromkeys(range(1, 40), "")
        acts: list[Callable[[], object]] = [
            lambda: items.claim(connection, plan_id, dict.fromkeys(at), 5),
            lambda: items.back(connection, plan_id, [*at]),
            lambda: spots.sent(connection, plan_id, [Sent(each, 1, Spot("o.replay", 0, each)) for each in at], 5),
            lambda: items.end(connection, plan_id, at, ItemState.SKIPPED, 5),
            lambda: items.ended(connection, at, ItemState.DONE, 5),
            lambda: items.where(connection, [*at]),
            lambda: redriven.end(connection, plan_id, at, ItemState.DONE, 5),
            lambda: lanes.let_go(connection, plan_id, [*at]),
        ]
        found = [each for act in acts for each in executed(database, act)]
        assert len(found) == len(acts) + 1
        assert [statement for statement, values in found if not is_found(connection, statement, values)] == []


def test_however_many_letters_have_a_status_those_of_a_batch_and_those_on_their_way_are_found_by_their_ids(database):
    with database.writing() as connection:
        mine = kind(connection)
        ids = [letter(connection, mine, number) for number in range(50)]
        acts: list[Callable[[], object]] = [
            lambda: contents.standings(connection, ids, lock=True),
            lambda: statuses.move(connection, ids, Status.OPEN, Status.REPLAYING, 5, 1),
            lambda: list(contents.contents(connection, 1, ids)),
            lambda: contents.replaying(connection, 1, 0, 5),
        ]
        found = [each for act in acts for each in executed(database, act) if "letters" in each[0]]
        assert len(found) == len(acts) + 1
        assert [statement for statement, values in found if not is_found(connection, statement, values)] == []


def rows(connection: Connection, plan_id: int) -> list[tuple[Any, ...]]:
    names = ("position", "state", "number", "sent_topic", "sent_partition", "sent_offset", "sent_at")
    asked = select(*(table.c[name] for name in names)).where(table.c.plan_id == plan_id)
    return [tuple(row) for row in connection.execute(asked.order_by(table.c.position))]


def executed(database: Database, act: Any) -> list[tuple[str, Any]]:
    """What an act executes; of a statement for many rows the first row's values."""
    found: list[tuple[str, Any]] = []

    def seen(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        found.append((statement, parameters[0] if many else parameters))

    event.listen(database._engine, "before_cursor_execute", seen)
    try:
        act()
    finally:
        event.remove(database._engine, "before_cursor_execute", seen)
    return found


def is_found(connection: Connection, statement: str, parameters: Any) -> bool:
    """Whether the database finds what a batch is about by its keys, and nothing by a status or a state alone."""
    keys: tuple[str, ...]
    if connection.dialect.name == "sqlite":
        asked = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
        plan = [line for line in (str(row[-1]) for row in asked) if line.startswith(("SEARCH", "SCAN", "USE"))]
        keys = ("(plan_id=? AND ", "(letter_id=?)", "(rowid=?)", "SCAN json_each")
        return all(any(key in line for key in keys) for line in plan)
    # Of a table this small it would scan what it need not.
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    plan = [str(row[-1]) for row in connection.exec_driver_sql("EXPLAIN " + statement, parameters)]
    keys = ("pk_items", "ix_items_letter_id", "pk_letters", "ix_letters_replaying", "pk_kinds", "ix_edits_plan")
    used = [line for line in plan if " on ix_" in line or " on pk_" in line or " using " in line]
    return bool(used) and all(any(key in line for key in keys) for line in used)
