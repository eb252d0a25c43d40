"""Groups and totals: counted with every change, listed by what needs a person, marked as fixed with who said so."""

from functools import partial
from random import Random

import pytest
from sqlalchemy import func, select, update

from bridge.deadletters.db import audit_rows, kind_rows, letter_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.table_definitions import letters, tallies
from bridge.deadletters.inspection.failure_groups import FailureGroups, GroupOrder
from bridge.deadletters.inspection.letter_statistics import LetterTotals, ResolutionTimes
from bridge.deadletters.model.failure_growth import HOUR
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import FilterFault, GroupChanged, NoSuchGroup
from tests.desk import filter_model as model
from tests.desk import rows

NOW = 500_000 * HOUR + HOUR // 2


@pytest.fixture
def groups(database):
    """Three: of a decline with 30 letters of two versions, of a time-out that grows, and one that is all resolved."""
    with database.writing() as connection:
        declined = [rows.kind(connection, error_class="bank.CardDeclined", version=each) for each in ("1.4.1", "1.4.2")]
        late = rows.kind(connection, error_class="builtins.TimeoutError", reason="expired")
        ended = rows.kind(connection, handler="orders.handlers.notify")
        for offset in range(30):
            rows.letter(connection, declined[offset % 2], offset, failed_at=NOW - 50 * HOUR + offset)
        for offset in range(12):
            rows.letter(connection, late, 100 + offset, failed_at=NOW - offset)
        rows.letter(connection, ended, 200, LetterStatus.RESOLVED, failed_at=NOW - HOUR, status_at=NOW)
        kind_rows.add_failure_hours(
            connection, {(late, 500_000): 12, (declined[0], 499_950): 15, (declined[1], 499_950): 15}
        )
        kind_rows.widen_group_times(connection, {rows.group_of(connection, late): (NOW - 11, NOW)})
    return FailureGroups(database, lambda: NOW / 1000)


def test_what_grows_comes_first_then_what_has_most_open_letters(groups):
    found = groups.all()
    assert [each.error_class for each in found] == ["builtins.TimeoutError", "bank.CardDeclined", "builtins.ValueError"]
    assert [(each.count, each.open) for each in found] == [(12, 12), (30, 30), (1, 0)]
    assert found[0].growth.failures == 12
    assert [each.open for each in groups.all(order=GroupOrder.OPEN)] == [30, 12, 0]
    assert groups.all(order=GroupOrder.NEWEST)[0].error_class == "builtins.TimeoutError"


@pytest.mark.parametrize("order", GroupOrder)
@pytest.mark.parametrize(
    "asked", [LetterFilter(), LetterFilter(statuses=(LetterStatus.OPEN,)), LetterFilter(since=NOW - HOUR)]
)
def test_groups_are_ranked_as_they_are_listed_and_a_page_of_them_is_the_same_groups(groups, order, asked):
    ranked, listed = groups.ranked(asked, order), groups.all(asked, order)
    assert [each.id for each in ranked] == [each.id for each in listed]
    assert [each.open for each in ranked] == [each.open for each in listed]
    assert groups.read_groups([each.id for each in ranked[1:]]) == listed[1:]


def test_of_no_group_there_is_none_and_of_one_that_is_gone_too(groups):
    assert groups.read_groups([]) == []
    assert [each.id for each in groups.read_groups([999, groups.all()[0].id])] == [groups.all()[0].id]


def test_urgent_are_groups_with_open_letters_that_grow_or_came_back(groups):
    assert [each.error_class for each in groups.urgent()] == ["builtins.TimeoutError"]
    _, declined, ended = groups.all()
    with groups.database.writing() as connection:
        again = tables.groups.c.id.in_([declined.id, ended.id])
        connection.execute(update(tables.groups).where(again).values(fixed_in="1.4.2", regressed_at=NOW))
    assert [each.error_class for each in groups.urgent()] == ["builtins.TimeoutError", "bank.CardDeclined"]
    assert groups.urgent() == [each for each in groups.all() if each.open and (each.growth or each.regressed_at)]


def test_what_grows_is_known_by_this_hour_and_the_one_before_alone(groups):
    with groups.database.writing() as connection:
        late = rows.kind(connection, error_class="builtins.KeyError")
        rows.letter(connection, late, 300)
        kind_rows.add_failure_hours(connection, {(late, 499_999): 10, (late, 499_998): 40})
        kind_rows.add_failure_hours(connection, {(rows.kind(connection, error_class="of.Yesterday"), 499_998): 99})
    found = [(each.error_class, each.growth.failures) for each in groups.urgent()]
    assert found == [("builtins.KeyError", 50), ("builtins.TimeoutError", 12)]


def test_a_group_is_told_to_programs_as_the_contract_says(groups):
    data = groups.all()[1].to_data()
    expected = {
        "handler": "orders.handlers.charge",
        "error_class": "bank.CardDeclined",
        "where": "orders/bank.py:pay",
        "count": 30,
        "open": 30,
        "versions": ["1.4.1", "1.4.2"],
        "fixed_in": None,
        "cause_fixes": [],
    }
    assert {name: data[name] for name in expected} == expected
    assert data["rate_week"] == round(30 / 168, 2)
    assert {"id", "first_at", "last_at"} <= set(data)


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        (LetterFilter(handlers=("orders.handlers.notify",)), 1),
        (LetterFilter(exceptions=("CardDeclined",)), 1),
        (LetterFilter(reasons=("expired",)), 1),
        (LetterFilter(versions=("1.4.2",)), 1),
        (LetterFilter(statuses=(LetterStatus.OPEN,)), 2),
        (LetterFilter(topics=("refunds",)), 0),
        (LetterFilter(since=NOW - HOUR), 1),
    ],
)
def test_groups_are_found_by_what_their_letters_have_in_common(groups, asked, count):
    assert len(groups.all(asked)) == count


def test_groups_are_not_found_by_what_single_letters_have(groups):
    with pytest.raises(FilterFault, match="single letters"):
        groups.all(LetterFilter(text="card"))


def test_a_group_is_marked_as_fixed_and_that_is_taken_back_with_who_said_so(groups):
    id_ = groups.all()[1].id
    marked = groups.fixed(id_, "1.4.3", "ann")
    assert (marked.fixed_in, marked.fixed_at, marked.fixed_by) == ("1.4.3", NOW, "ann")
    assert groups.one(id_) == marked
    assert groups.not_fixed(id_, "bob").fixed_in is None
    with groups.database.reading() as connection:
        told = [(each.by, each.what, each.said) for each in audit_rows.read_history(connection, group_id=id_)]
    assert told == [("ann", "fixed", "in 1.4.3"), ("bob", "not fixed", "")]


def test_a_group_that_somebody_has_marked_meanwhile_stays_as_they_have_marked_it(groups):
    seen = groups.all()[1]
    theirs = groups.fixed(seen.id, "1.4.3", "bob")
    with pytest.raises(GroupChanged, match=r"bob has marked it as fixed in 1\.4\.3"):
        groups.fixed(seen.id, "1.4.4", "ann", seen)
    with pytest.raises(GroupChanged, match="bob has marked"):
        groups.not_fixed(seen.id, "ann", seen)
    assert groups.one(seen.id) == theirs
    assert groups.not_fixed(seen.id, "ann", theirs).fixed_in is None
    with pytest.raises(GroupChanged, match="not marked as fixed any more"):
        groups.not_fixed(seen.id, "bob", theirs)
    assert groups.fixed(seen.id, "1.4.4", "ann", groups.one(seen.id)).fixed_in == "1.4.4"


def test_a_cause_is_marked_alone_and_only_as_it_was_seen(groups):
    id_ = groups.all()[1].id
    with groups.database.writing() as connection:
        connection.execute(update(tables.kinds).where(tables.kinds.c.group_id == id_).values(cause="aaa"))
    seen = groups.one(id_)
    marked = groups.fixed(id_, "1.4.3", "ann", seen, cause="aaa")
    (fix,) = marked.cause_fixes
    assert (fix.cause, fix.fixed_in, fix.fixed_at, fix.fixed_by) == ("aaa", "1.4.3", NOW, "ann")
    assert marked.fixed_in is None
    assert [each.is_fixed for each in groups.ranked() if each.id == id_] == [True]
    with pytest.raises(GroupChanged, match=r"ann has marked it as fixed in 1\.4\.3"):
        groups.fixed(id_, "1.4.4", "bob", seen, cause="aaa")
    with pytest.raises(NoSuchGroup, match=f"Group {id_} has no cause bbb"):
        groups.fixed(id_, "1.4.4", "bob", cause="bbb")
    assert groups.not_fixed(id_, "bob", marked, cause="aaa").cause_fixes == ()
    with groups.database.reading() as connection:
        told = [(each.by, each.what, each.said) for each in audit_rows.read_history(connection, group_id=id_)]
    assert told == [("ann", "fixed", "cause aaa in 1.4.3"), ("bob", "not fixed", "cause aaa")]


def test_a_group_that_is_none_is_said_to_be_none(groups):
    for act in (groups.one, partial(groups.fixed, version="1", by="ann"), partial(groups.not_fixed, by="ann")):
        with pytest.raises(NoSuchGroup, match="no group 999"):
            act(999)
    with pytest.raises(FilterFault, match="which version"):
        groups.fixed(1, " ", "ann")


def test_totals_have_letters_by_status_handler_and_reason_and_how_long_they_took(groups):
    found = LetterTotals(groups.database, lambda: NOW / 1000).stats()
    assert found.statuses == {"open": 42, "resolved": 1}
    assert {(each.handler, each.reason): each.statuses for each in found.handled} == {
        ("orders.handlers.charge", "exhausted"): {"open": 30},
        ("orders.handlers.charge", "expired"): {"open": 12},
        ("orders.handlers.notify", "exhausted"): {"resolved": 1},
    }
    assert found.groups == 2
    assert found.oldest_open == NOW - 50 * HOUR
    assert found.hours[-1] == 12
    assert found.resolved_after == ResolutionTimes(3_600, 3_600)
    assert found.to_data()["oldest_open_seconds"] == 50 * 3_600


def test_what_is_counted_at_once_is_what_the_totals_say(groups):
    totals = LetterTotals(groups.database, lambda: NOW / 1000)
    counted, stats = totals.counted(), totals.stats()
    assert counted == (stats.statuses, stats.handled, stats.hours)
    assert sum(counted.hours) == 12


def test_an_empty_desk_has_totals_too(database):
    found = LetterTotals(database).stats()
    assert (found.statuses, found.oldest_open, found.resolved_after) == ({}, None, None)


def test_tallies_are_what_a_recount_finds_whatever_was_done(database):
    random = Random(3)
    with database.writing() as connection:
        made = model.make(connection, 120, 3)
    for _ in range(60):
        ids = [each.id for each in random.sample(made, 20)]
        with database.writing() as connection:
            letter_rows.change_letter_status(
                connection, ids, random.choice(list(LetterStatus)), random.choice(list(LetterStatus)), 5
            )
    with database.reading() as connection:
        of = letters.c.kind_id, letters.c.status
        recount = connection.execute(select(*of, func.count()).group_by(*of))
        counted = connection.execute(select(tallies).where(tallies.c.count != 0))
        assert {tuple(row) for row in counted} == {tuple(row) for row in recount}
