"""What is promised of a plan's deliveries as they are sent: where each lies, and that a large plan costs no more."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import event, select

from bridge.deadletters.db import (
    letter_payload,
    letter_rows,
    plan_item_rows,
    plan_order_rows,
    plan_rows,
)
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.db.table_definitions import items as table
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk.rows import kind, letter


def claimed(connection: Connection, count: int) -> int:
    """A plan that has claimed all of its deliveries."""
    plan_id, _ = plan_rows.add_plan(connection, PlanKind.REDRIVE, "ann", "", {}, PlanOptions())
    places = [PlanItem(number, None, f"orders-0-{number}:orders.handlers.charge", 0) for number in range(1, count + 1)]
    plan_item_rows.add_items(connection, plan_id, places, canary=False)
    plan_item_rows.claim_items(
        connection, plan_id, {each.position: LogPosition("orders.replay", 0, 0) for each in places}, 1
    )
    return plan_id


def test_each_delivery_has_the_number_and_the_place_that_it_was_sent_with_and_what_has_ended_stays_so(database):
    with database.writing() as connection:
        other, plan_id = claimed(connection, 7), claimed(connection, 7)
        plan_item_rows.end_items(connection, plan_id, {2: "nobody wants it"}, PlanItemState.REFUSED, 3)
        sent = [
            SentRecord(6, 2, LogPosition("orders.replay", 3, 14)),
            SentRecord(1, 1, LogPosition("orders.replay", 0, 10)),
            SentRecord(2, 1, LogPosition("orders.replay", 1, 2**40)),
            SentRecord(3, 7, LogPosition("orders.replay", 0, 12)),
            SentRecord(4, 1, LogPosition("mails.replay", 0, 0)),
        ]
        plan_item_rows.note_sent_records(connection, plan_id, sent, 5)
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
            lambda: plan_item_rows.claim_items(connection, plan_id, dict.fromkeys(at), 5),
            lambda: plan_item_rows.note_sent_records(
                connection, plan_id, [SentRecord(each, 1, LogPosition("o.replay", 0, each)) for each in at], 5
            ),
            lambda: plan_item_rows.end_items(connection, plan_id, at, PlanItemState.SKIPPED, 5),
            lambda: plan_item_rows.end_items_of_letters(connection, at, PlanItemState.DONE, 5),
            lambda: plan_item_rows.read_sent_positions(connection, [*at]),
            lambda: plan_item_rows.end_items(connection, plan_id, at, PlanItemState.DONE, 5, [PlanItemState.SENT]),
            lambda: plan_order_rows.release_held_items(connection, plan_id, [*at]),
        ]
        found = [each for act in acts for each in executed(database, act)]
        assert len(found) == len(acts) + 1
        assert [statement for statement, values in found if not is_found(connection, statement, values)] == []


def test_however_many_letters_have_a_status_those_of_a_batch_and_those_on_their_way_are_found_by_their_ids(database):
    with database.writing() as connection:
        mine = kind(connection)
        ids = [letter(connection, mine, number) for number in range(50)]
        acts: list[Callable[[], object]] = [
            lambda: letter_payload.read_letter_standings(connection, ids, lock=True),
            lambda: letter_rows.change_letter_status(connection, ids, LetterStatus.OPEN, LetterStatus.REPLAYING, 5, 1),
            lambda: list(letter_payload.read_letter_contents(connection, 1, ids)),
            lambda: letter_payload.read_replaying_letters(connection, 1, 0, 5),
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
