"""A letter of which nobody can tell whether its replay ran is opened by proof or by a person, and by nothing else."""

from sqlalchemy import insert

from bridge.cli.answers import FAULTS
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.outcomes.unknown_ends import UnknownEnds
from bridge.deadletters.plan.plan import ItemState, Options, What
from bridge.deadletters.questions.problems import unknown
from bridge.deadletters.store import contents, items, plans, schema, trail, unknown_letters
from bridge.deadletters.store.database import Database
from tests.desk.commands import Commands
from tests.desk.rows import kind, letter


def sent(database: Database, *states: ItemState) -> tuple[int, list[int]]:
    """A plan that has sent letters back, and their ids."""
    with database.writing() as connection:
        plan_id, _ = plans.add(connection, What.REPLAY, "ann", "", {}, Options())
        of = kind(connection)
        ids = [letter(connection, of, offset, Status.REPLAYING, plan_id=plan_id) for offset in range(len(states))]
        rows = zip(ids, states, strict=True)
        for position, (id_, state) in enumerate(rows, 1):
            row = {"plan_id": plan_id, "position": position, "letter_id": id_, "failures": 1, "state": state}
            connection.execute(insert(schema.items).values(row))
    return plan_id, ids


def statuses(database: Database, ids: list[int]) -> list[str]:
    with database.reading() as connection:
        found = contents.standings(connection, ids)
    return [str(found[id_].status) for id_ in ids]


def test_a_person_opens_what_has_an_unknown_end_and_nothing_that_is_under_way(database: Database):
    plan_id, ids = sent(database, ItemState.UNKNOWN, ItemState.SENT, ItemState.UNKNOWN)
    with database.reading() as connection:
        number, since = unknown_letters.count(connection)
        assert [each.unknown for each in contents.replaying(connection, plan_id, 0, 10)] == [True, False, True]
    (problem,) = unknown(number, since, 60.0)
    assert (problem.kind, problem.many) == ("unknown ends", 2)
    ends = UnknownEnds(database)
    assert ends.reopen(ids[:2], None, "the bank has none", "bob") == ids[:1]
    assert ends.reopen([], plan_id, "the bank has none", "bob") == ids[2:]
    assert statuses(database, ids) == ["open", "replaying", "open"]
    with database.reading() as connection:
        assert [(each.what, each.by) for each in trail.of(connection, letter_id=ids[0])][-1] == ("reopen", "bob")
        assert [*unknown(*unknown_letters.count(connection), 60.0)] == []


def test_what_a_person_knows_to_have_run_is_resolved_with_the_reason(database: Database):
    plan_id, ids = sent(database, ItemState.UNKNOWN, ItemState.SENT)
    assert UnknownEnds(database).resolve(ids, None, "the bank has it", "bob") == ids[:1]
    assert statuses(database, ids) == ["resolved", "replaying"]
    with database.reading() as connection:
        assert items.counts(connection, [plan_id])[plan_id] == {"done": 1, "sent": 1}
        (told,) = trail.of(connection, letter_id=ids[0])
        assert [*unknown(*unknown_letters.count(connection), 60.0)] == []
    assert (told.what, told.by, told.said) == ("resolve", "bob", "the bank has it")


def test_the_command_resolves_an_unknown_end_and_leaves_every_other(database: Database, database_url, monkeypatch):
    plan_id, ids = sent(database, ItemState.UNKNOWN, ItemState.SENT, ItemState.UNKNOWN)
    desk = Commands(monkeypatch, database_url)
    shown = desk.run("show", ids[0]).output
    assert f"bridge deadletters resolve {ids[0]} --why" in shown
    ended = desk.run("resolve", *ids[:2], "--why", "the bank has it", "--by", "bob")
    assert ended.exit_code == FAULTS
    assert "1 letter resolved" in ended.output
    assert f"left as they are, since their end is not unknown: {ids[1]}" in ended.output
    assert desk.run("reopen", "--plan", plan_id, "--why", "the bank has it not").exit_code == 0
    assert statuses(database, ids) == ["resolved", "replaying", "open"]


def test_an_end_that_was_not_known_may_be_proven_later(database: Database):
    plan_id, ids = sent(database, ItemState.UNKNOWN)
    with database.writing() as connection:
        items.ended(connection, ids, ItemState.DONE, 5)
    with database.reading() as connection:
        assert items.counts(connection, [plan_id])[plan_id] == {"done": 1}
