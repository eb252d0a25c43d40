"""Saved views: a filter by a name, of one user or of all, for whoever may search by it."""

import re
from html import unescape

import pytest

from bridge.deadletters.accounts import saved_view
from bridge.deadletters.accounts.saved_view import EVERYBODY, SavedViews
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.row_scope import RowScope
from bridge.deadletters.model.letter_scope import LetterScope
from bridge.errors import FilterFault
from tests.desk.letters import letter


def views_of(page):
    """The views that a page shows: addresses by name."""
    return {name: unescape(to) for to, name in re.findall(r'<li><a href="([^"]*)"[^>]*><bdi>(.*?)</bdi>', page)}


def save(client, name, **fields):
    return client.post("/views", data={"token": client.token, "view": name, **fields})


def test_a_filter_is_saved_shown_and_removed_and_its_times_stay_relative(browser, record, desk):
    record(letter(1, value=b'{"currency": "EUR"}'), letter(2))
    ann = browser()
    saved = save(ann, "  Euros  today ", value="currency=EUR", since="24h", status="open", rows="25")
    assert saved.status_code == 303
    assert saved.headers["location"] == "/letters?value=currency%3DEUR&since=24h&status=open"
    (to,) = views_of(ann.get("/letters").text).values()
    assert to == "/letters?value=currency%3DEUR&since=24h&status=open"
    assert 'aria-current="true"><bdi>Euros today' in ann.get(to).text
    assert views_of(browser(Role.VIEWER).get("/letters").text) == {}
    save(ann, "Euros today", value="currency=CHF")
    ((_, _, name, fields),) = desk.views.of("ann")
    assert (name, fields) == ("Euros today", (("value", "currency=CHF"),))
    (id_,) = re.findall(r'action="/views/(\d+)/remove"', ann.get("/letters").text)
    viewer = browser(Role.VIEWER)
    viewer.post(f"/views/{id_}/remove", data={"token": viewer.token})
    assert len(desk.views.of("ann")) == 1
    assert ann.post(f"/views/{id_}/remove", data={"token": ann.token, "topic": "orders"}).status_code == 303
    assert desk.views.of("ann") == []


def test_an_admin_saves_a_view_for_all_and_others_cannot(browser, record, desk):
    record(letter(1))
    save(browser(Role.ADMIN), "Triage", shared="yes", reason="poison")
    save(browser(), "Mine", shared="yes", reason="poison")
    assert [each.owner for each in desk.views.of("ann")] == ["ann", EVERYBODY]
    page = browser(Role.VIEWER).get("/letters").text
    assert list(views_of(page)) == ["Triage"]
    assert "/remove" not in page


@pytest.mark.parametrize("name", ["", "  ", "x" * 61, "a\nb\0"])
def test_a_view_without_a_proper_name_is_refused(browser, desk, name):
    refused = save(browser(), name, topic="orders")
    assert refused.status_code == 400
    assert "Nothing was saved" in refused.text
    assert desk.views.of("ann") == []


def test_a_view_of_no_filter_or_of_one_that_cannot_be_read_is_refused(browser, desk):
    for fields in ({}, {"since": "soon"}, {"text": "x " * 1_500}):
        assert save(browser(), "View", **fields).status_code == 400
    assert desk.views.of("ann") == []


def test_a_user_has_50_views_at_most(desk, monkeypatch):
    monkeypatch.setattr(saved_view, "MOST_VIEWS", 2)
    for name in ("a", "b", "a"):
        desk.views.save("ann", name, [("topic", "orders")])
    desk.views.save("kim", "c", [("topic", "orders")])
    with pytest.raises(FilterFault, match="2 views already"):
        desk.views.save("ann", "c", [("topic", "orders")])
    assert [each.name for each in desk.views.of("ann")] == ["a", "b"]


def test_a_view_for_all_is_hidden_from_a_role_that_may_not_search_by_it(new_site):
    site = new_site(DEADLETTERS_MASK="orders: card")
    site.console.desk.views.save(EVERYBODY, "Cards", [("value", "card=4711")])
    site.console.desk.views.save(EVERYBODY, "Poison", [("reason", "poison")])
    assert list(views_of(site.signed_in(Role.OPERATOR).get("/letters").text)) == ["Poison"]


def test_an_account_with_a_scope_sees_and_changes_its_own_views_alone(desk):
    desk.views.save(EVERYBODY, "All", [("topic", "secret")])
    desk.views.save("kim", "Kim's", [("topic", "secret")])
    scoped = SavedViews(desk.database.for_scope(RowScope(LetterScope(("orders",)), "ann")))
    scoped.save("ann", "Mine", [("topic", "orders")])
    assert [each.name for each in scoped.of("ann")] == ["Mine"]
    assert scoped.of("kim") == []
    for each in (*desk.views.of("kim"), *desk.views.of("ann")):
        scoped.remove(each.id, ["ann", "kim", EVERYBODY])
    assert {each.name for each in (*desk.views.of("kim"), *desk.views.of("ann"))} == {"All", "Kim's"}
