"""A letter of which nobody can tell whether its replay ran is opened by proof or by a person, and by nothing else."""

from sqlalchemy import insert

from bridge.cli.command_io import FAULTS
from bridge.deadletters.alarms.dead_letter_problems import find_unknown_outcomes
from bridge.deadletters.db import (
    audit_rows,
    letter_payload,
    letter_rows,
    plan_item_rows,
    plan_rows,
)
from bridge.deadletters.db import (
    table_definitions as tables,
)
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.replay_outcomes import UnknownOutcomes
from tests.desk.commands import Commands
from tests.desk.rows import kind, letter


def sent(database: Database, *states: PlanItemState) -> tuple[int, list[int]]:
    """A plan that has sent letters back, and their ids."""
    with database.writing() as connection:
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        of = kind(connection)
        ids = [letter(connection, of, offset, LetterStatus.REPLAYING, plan_id=plan_id) for offset in range(len(states))]
        rows = zip(ids, states, strict=True)
        for position, (id_, state) in enumerate(rows, 1):
            row = {"plan_id": plan_id, "position": position, "letter_id": id_, "failures": 1, "state": state}
            connection.execute(insert(tables.items).values(row))
    return plan_id, ids


def statuses(database: Database, ids: list[int]) -> list[str]:
    with database.reading() as connection:
        found = letter_payload.read_letter_standings(connection, ids)
    return [str(found[id_].status) for id_ in ids]


def test_a_person_opens_what_has_an_unknown_end_and_nothing_that_is_under_way(database: Database):
    plan_id, ids = sent(database, PlanItemState.UNKNOWN, PlanItemState.SENT, PlanItemState.UNKNOWN)
    with database.reading() as connection:
        number, since = letter_rows.count_unknown_letters(connection)
        assert [each.unknown for each in letter_payload.read_replaying_letters(connection, plan_id, 0, 10)] == [
            True,
            False,
            True,
        ]
    (problem,) = find_unknown_outcomes(number, since, 60.0)
    assert (problem.kind, problem.many) == ("unknown ends", 2)
    ends = UnknownOutcomes(database)
    assert ends.reopen(ids[:2], None, "the bank has none", "bob") == ids[:1]
    assert ends.reopen([], plan_id, "the bank has none", "bob") == ids[2:]
    assert statuses(database, ids) == ["open", "replaying", "open"]
    with database.reading() as connection:
        assert [(each.what, each.by) for each in audit_rows.read_history(connection, letter_id=ids[0])][-1] == (
            "reopen",
            "bob",
        )
        assert [*find_unknown_outcomes(*letter_rows.count_unknown_letters(connection), 60.0)] == []


def test_what_a_person_knows_to_have_run_is_resolved_with_the_reason(database: Database):
    plan_id, ids = sent(database, PlanItemState.UNKNOWN, PlanItemState.SENT)
    assert UnknownOutcomes(database).resolve(ids, None, "the bank has it", "bob") == ids[:1]
    assert statuses(database, ids) == ["resolved", "replaying"]
    with database.reading() as connection:
        assert plan_item_rows.count_item_states(connection, [plan_id])[plan_id] == {"done": 1, "sent": 1}
        (told,) = audit_rows.read_history(connection, letter_id=ids[0])
        assert [*find_unknown_outcomes(*letter_rows.count_unknown_letters(connection), 60.0)] == []
    assert (told.what, told.by, told.said) == ("resolve", "bob", "the bank has it")


def test_the_command_resolves_an_unknown_end_and_leaves_every_other(database: Database, database_url, monkeypatch):
    plan_id, ids = sent(database, PlanItemState.UNKNOWN, PlanItemState.SENT, PlanItemState.UNKNOWN)
    desk = Commands(monkeypatch, database_url)
    shown = desk.run("show", ids[0]).output
    assert f"bridge deadletters resolve {ids[0]} --why" in shown
    ended = desk.run("resolve", *ids[:2], "--why", "the bank has it", "--by", "bob")
    assert ended.exit_code == FAULTS
    assert "1 letter resolved" in ended.output
    assert f"left as they are, since their outcome is not unknown: {ids[1]}" in ended.output
    assert desk.run("reopen", "--plan", plan_id, "--why", "the bank has it not").exit_code == 0
    assert statuses(database, ids) == ["resolved", "replaying", "open"]


def test_an_end_that_was_not_known_may_be_proven_later(database: Database):
    plan_id, ids = sent(database, PlanItemState.UNKNOWN)
    with database.writing() as connection:
        plan_item_rows.end_items_of_letters(connection, ids, PlanItemState.DONE, 5)
    with database.reading() as connection:
        assert plan_item_rows.count_item_states(connection, [plan_id])[plan_id] == {"done": 1}
