"""A filter by a field of values is exact within its bounds, and says where they are reached."""

import pytest

from bridge.deadletters.db import letter_query, value_search
from bridge.deadletters.db.filter_sql import build_letter_conditions
from bridge.deadletters.db.row_scope import RowScope
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_scope import LetterScope
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import FilterFault
from tests.desk import rows

EUROS = LetterFilter(values=(("currency", "EUR"),))


@pytest.fixture
def euros(database):
    """The letters in euros: every third of thirty open ones, one that is resolved, and one of another topic."""
    with database.writing() as connection:
        orders, refunds = rows.kind(connection), rows.kind(connection, topic="refunds")
        found = []
        for offset in range(30):
            currency = "EUR" if offset % 3 == 0 else "CHF"
            id_ = make(connection, orders, offset, currency)
            found += [id_] if currency == "EUR" else []
        found.append(make(connection, orders, 90, "EUR", LetterStatus.RESOLVED))
        found.append(make(connection, refunds, 91, "EUR"))
    return found


def make(connection, kind, offset, currency, status=LetterStatus.OPEN):
    value = b'{"currency": "%s"}' % currency.encode()
    return rows.letter(connection, kind, offset, status, value=value, value_size=len(value), failed_at=offset)


def test_the_letters_of_an_action_are_those_of_the_list(database, euros):
    for asked in (EUROS, LetterFilter(values=EUROS.values, statuses=(LetterStatus.OPEN,), topics=("orders",))):
        listed = [each.id for each in LetterLookup(database).each(asked)]
        assert find_among(database, asked) == sorted(listed)
    assert sorted(each.id for each in LetterLookup(database).each(EUROS)) == sorted(euros)
    assert find_among(database, LetterFilter()) is None
    assert find_among(database, LetterFilter(values=(("currency", "USD"),))) == []


def test_an_action_on_more_letters_than_are_searched_is_refused_and_no_part_of_it_is_done(database, euros, monkeypatch):
    monkeypatch.setattr(value_search, "MOST_SEARCHED", 31)
    with pytest.raises(FilterFault, match=r"of at most 31 letters .* name a handler, a group, a status or a time"):
        find_among(database, EUROS)
    monkeypatch.setattr(value_search, "MOST_SEARCHED", 32)
    assert find_among(database, EUROS) == sorted(euros)


def test_an_action_on_values_that_are_large_together_is_refused(database, euros, monkeypatch):
    monkeypatch.setattr(value_search, "MOST_BYTES", 100)
    monkeypatch.setattr(value_search, "_AT_ONCE", 5)
    with pytest.raises(FilterFault, match="the most that is searched for an action"):
        find_among(database, EUROS)


def test_pages_end_where_values_are_large_together_and_leave_out_no_letter(database, euros, monkeypatch):
    monkeypatch.setattr(value_search, "PAGE_BYTES", 40)
    monkeypatch.setattr(value_search, "_AT_ONCE", 3)
    assert sorted(each.id for each in LetterLookup(database).each(EUROS)) == sorted(euros)


def test_a_count_says_among_how_many_it_was_counted(database, euros, monkeypatch):
    lookup = LetterLookup(database)
    assert (lookup.count(EUROS).number, lookup.count(EUROS).exact) == (12, True)
    monkeypatch.setattr(letter_query, "MOST_LOOKED_THROUGH", 10)
    assert str(lookup.count(EUROS)) == "at least 4 (counted among the newest 10 alone)"


def test_letters_without_a_value_here_are_counted_and_no_action_leaves_them_out_silently(database, euros):
    with database.writing() as connection:
        kind = rows.kind(connection)
        rows.letter(connection, kind, 95, value=None, value_size=2_000_000)
        rows.letter(connection, kind, 96, value=None, value_size=-1)
    unread: list[int] = []
    lookup = LetterLookup(database)
    assert len([*lookup.each(EUROS, unread.append)]) == 12
    assert unread == [1]
    assert not lookup.count(EUROS).exact
    with pytest.raises(FilterFault, match="1 of these 34 letters cannot be searched by value"):
        find_among(database, EUROS)


def test_an_account_with_a_scope_finds_covered_letters_alone(database, euros):
    scoped = database.for_scope(RowScope(LetterScope(("refunds",)), "ann"))
    assert find_among(scoped, EUROS) == [euros[-1]]
    assert [each.id for each in LetterLookup(scoped).each(EUROS)] == [euros[-1]]


def test_a_filter_whose_values_nobody_searched_is_no_condition():
    with pytest.raises(ValueError, match="search the values first"):
        build_letter_conditions(EUROS)
