"""Edits of letters: nothing is sent back that its handler would refuse, and the earlier value is kept."""

import json

import pytest
from celery import Celery
from pydantic import BaseModel

from bridge.deadletters.db import audit_rows, letter_payload, plan_item_rows
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.editing.letter_edit import LetterEditor
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import EditRefused, NoSuchLetter
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.desk import rows
from tests.desk.rows import kind, letter

HANDLER = "orders.handlers.charge"
ALL = LetterFilter(handlers=(HANDLER,))
EUROS = ValuePatch.read(
    '[{"op": "add", "path": "/currency", "value": "EUR"}, {"op": "test", "path": "/ok", "value": true}]'
)


class Order(BaseModel):
    amount: int


def lifted(order):
    return {"amount": order["cents"]}


@pytest.fixture
def mending(database):
    app = Celery("shop", set_as_current=False)
    app.conf.update(DEFAULTS)

    def charge(order: Order) -> None:
        raise AssertionError("it runs")

    declare_handler(app, ("orders",), {"name": HANDLER, "upgrade": lifted})(charge)
    yield LetterEditor(app, database)
    app.close()


def record(database, *values, handler=HANDLER, **other):
    with database.writing() as connection:
        one = kind(connection, handler)
        return [
            letter(connection, one, at, value=value, value_size=-1 if value is None else len(value), **other)
            for at, value in enumerate(values)
        ]


def states(database, plan_id):
    with database.reading() as connection:
        return plan_item_rows.count_item_states(connection, [plan_id]).get(plan_id, {})


def test_a_letter_goes_back_with_the_value_that_it_was_given_and_keeps_its_own(database, mending):
    (id_,) = record(database, b'{"amount": "much"}')
    plan = mending.edit(id_, b'{"amount": 3}', "ann", "the client sent words")
    assert (plan.state, plan.by, plan.counts.letters) == (PlanState.PLANNED, "ann", 1)
    with database.reading() as connection:
        assert rows.edits_of(connection, plan.id)[id_] == b'{"amount": 3}'
        (said,) = audit_rows.read_history(connection, letter_id=id_)
        assert (said.by, said.what, said.plan_id) == ("ann", "edit", plan.id)
        assert "the client sent words" in said.said
    (changed,) = mending.differences(plan.id)
    assert '-  "amount": "much"' in changed.text
    assert '+  "amount": 3' in changed.text


def test_a_value_that_its_handler_does_not_take_is_refused_with_why_before_anything_is_planned(database, mending):
    (id_,) = record(database, b"{}")
    with pytest.raises(EditRefused, match="amount: Field required"):
        mending.edit(id_, b'{"name": "x"}', "ann")
    with database.reading() as connection:
        assert letter_payload.read_letter_edits(connection, id_) == []
    assert mending.edit(id_, b'{"name": "x"}', "ann", force=True).counts.letters == 1


def test_a_value_for_a_handler_that_is_not_known_here_is_refused_unless_forced(database, mending):
    (id_,) = record(database, b"{}", handler="orders.handlers.gone")
    with pytest.raises(EditRefused, match="is no handler of this app"):
        mending.edit(id_, b'{"amount": 3}', "ann")
    assert mending.edit(id_, b'{"amount": 3}', "ann", force=True).counts.letters == 1


def test_the_value_that_it_has_already_is_no_edit(database, mending):
    (id_,) = record(database, b'{"amount": 3}')
    with pytest.raises(EditRefused, match="has this value already"):
        mending.edit(id_, b'{"amount": 3}', "ann")


@pytest.mark.parametrize(
    "status", [LetterStatus.REPLAYING, LetterStatus.RESOLVED, LetterStatus.DISCARDED, LetterStatus.ARCHIVED]
)
def test_only_what_is_open_is_edited(database, mending, status):
    (id_,) = record(database, b"{}", status=status)
    with pytest.raises(EditRefused, match=f"is {status}"):
        mending.edit(id_, b'{"amount": 3}', "ann")


def test_a_letter_that_is_not_there_is_said(mending):
    with pytest.raises(NoSuchLetter):
        mending.edit(99, b"{}", "ann")


def test_a_patch_plans_what_it_changes_and_says_why_the_others_stay(database, mending):
    good = [b'{"amount": %d, "ok": true}' % number for number in range(7)]
    others = [
        b"no json",
        b'{"amount": 1, "ok": false}',
        b'{"ok": true}',
        b'{"amount":1,"ok":true,"currency":"EUR"}',
        None,
    ]
    ids = record(database, *good, *others)
    plan = mending.patch(ALL, EUROS, PlanOptions(), "ann")
    assert plan.state is PlanState.PLANNED
    assert states(database, plan.id) == {PlanItemState.WAITING: 7, PlanItemState.SKIPPED: 5}
    told = plan.counts.edits
    assert {name: told[name] for name in ("changed", "unchanged", "no_json", "not_applied", "not_valid")} == {
        "changed": 7,
        "unchanged": 1,
        "no_json": 2,
        "not_applied": 1,
        "not_valid": 1,
    }
    assert told["not_applied_reasons"] == [{"why": "test /ok: it is not that", "count": 1, "letters": [ids[8]]}]
    with database.reading() as connection:
        made = rows.edits_of(connection, plan.id)
    assert [json.loads(made[id_] or b"")["currency"] for id_ in ids[:7]] == ["EUR"] * 7
    assert set(made) == set(ids[:7])
    assert [each.letter_id for each in mending.differences(plan.id, 3)] == ids[:3]


def test_what_its_handler_would_not_take_after_the_patch_goes_where_that_is_forced(database, mending):
    record(database, b'{"ok": true}')
    plan = mending.patch(ALL, EUROS, PlanOptions(), "ann", force=True)
    assert plan.counts.edits["changed"] == 1


def test_the_waves_of_a_canary_have_only_what_goes_back(database, mending):
    record(database, *[b"no json"] * 130, *[b'{"amount": 1, "ok": true}'] * 130)
    plan = mending.patch(ALL, EUROS, PlanOptions(canary=True), "ann")
    with database.reading() as connection:
        waves = [
            plan_item_rows.count_item_states(connection, [plan.id], wave)[plan.id].get(PlanItemState.WAITING)
            for wave in range(5)
        ]
    assert waves == [1, 5, 20, 100, 4]


def test_more_letters_than_are_looked_at_at_once_are_patched(database, mending, monkeypatch):
    monkeypatch.setattr("bridge.deadletters.editing.letter_edit.AT_ONCE", 3)
    record(database, *[b'{"amount": 1, "ok": true}'] * 10)
    assert mending.patch(ALL, EUROS, PlanOptions(), "ann").counts.edits["changed"] == 10
    assert mending.check(ALL).letters == 10


def test_a_plan_that_was_being_made_when_its_process_died_is_never_applied(database, mending, monkeypatch):
    record(database, b'{"amount": 1, "ok": true}')

    def died(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bridge.deadletters.editing.letter_edit.letter_payload.add_edits", died)
    with pytest.raises(KeyboardInterrupt):
        mending.patch(ALL, EUROS, PlanOptions(), "ann")
    with database.reading() as connection:
        from bridge.deadletters.db import plan_rows

        (plan,) = plan_rows.read_latest_plans(connection, 10)
    assert plan.state is PlanState.MAKING


def test_which_letters_would_validate_now_is_counted_by_reason(database, mending):
    ids = record(database, b'{"amount": 1}', b'{"cents": 1}', b'{"amount": "much"}', b"{}", None)
    (large,) = record(database, None, topic_id="other")
    with database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE letters SET value_size = 20000000 WHERE id = {large}")
    found = mending.check(ALL).to_data()
    assert (found["valid"], found["upgraded"], found["invalid"], found["unknown"]) == (2, 1, 2, 1)
    assert {tuple(each["letters"]) for each in found["invalid_reasons"]} == {(ids[2],), (ids[3],)}
