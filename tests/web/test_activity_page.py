"""What is promised of Activity: who did what and when, within a range, for whom it is to be seen, and as a file."""

import csv
import io
import json
import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import update
from starlette.datastructures import QueryParams

from bridge.console.pages import activity_page
from bridge.console.pages.activity_page import ActivityRange, resolve_range, write_csv, write_json
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.audit_rows import AuditEntry
from bridge.deadletters.db.table_definitions import trail
from bridge.errors import FilterFault
from tests.desk.letters import letter
from tests.web import hostile_input

HOUR = 3_600_000
NOW = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)


def ms(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


def find(pattern, page):
    found = re.search(pattern, page)
    assert found, pattern
    return unescape(found[1])


@pytest.fixture
def act(desk, console):
    """Adds an act that was done some hours ago."""
    console.clock = lambda: ms("2026-11-21T02:30")

    def done(hours, by="ann", what="note", said="an act"):
        desk.trail.add(by, what, said)
        with desk.database.writing() as connection:
            last = desk.trail.page(limit=1).entries[0].id
            connection.execute(update(trail).where(trail.c.id == last).values(at=console.clock() - int(hours * HOUR)))

    return done


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("range=today", "2026-11-21T00:00", None),
        ("range=yesterday", "2026-11-20T00:00", "2026-11-21T00:00"),
        ("", "2026-11-14T02:30", None),
        ("range=7d", "2026-11-14T02:30", None),
        ("range=30d", "2026-10-22T02:30", None),
        ("range=all", None, None),
        ("since=2026-11-20T08:00&until=2026-11-20T09:00", "2026-11-20T08:00", "2026-11-20T09:00"),
        ("range=today&since=2h", "2026-11-21T00:30", None),
    ],
)
def test_a_range_is_a_word_or_two_times(query, since, until):
    found = resolve_range(QueryParams(query), NOW)
    assert found[1:] == (since and ms(since), until and ms(until))


def test_a_day_is_that_of_the_zone_that_the_page_shows():
    night = datetime(2026, 11, 20, 23, 30, tzinfo=UTC).astimezone(ZoneInfo("Europe/Zurich"))
    assert resolve_range(QueryParams("range=today"), night) == ActivityRange("today", ms("2026-11-20T23:00"))
    yesterday = ActivityRange("yesterday", ms("2026-11-19T23:00"), ms("2026-11-20T23:00"))
    assert resolve_range(QueryParams("range=yesterday"), night) == yesterday


@pytest.mark.parametrize("query", ["range=never", "since=soon", "since=1h&until=2h"])
def test_a_range_that_means_nothing_is_refused(query):
    with pytest.raises(FilterFault):
        resolve_range(QueryParams(query), NOW)


def test_who_did_what_yesterday_is_two_clicks_away_and_one_more_shows_one_person(browser, act):
    act(40, "bob", "note", "the day before")
    act(6, "bob", "policy", "max_retries=3 of charge: the bank is slow")
    act(5, "ann", "halt", "halted orders: the bank books twice")
    act(1, "ann", "halt", "halted orders: today")
    ann = browser(Role.VIEWER)
    page = ann.get("/").text
    page = ann.get(find(r'<a href="(/activity)"[^>]*>Activity</a>', page)).text
    page = ann.get(find(r'<a href="([^"]*)">Yesterday</a>', page)).text
    assert words(page).startswith("2 acts yesterday")
    assert page.index("the bank books twice") < page.index("the bank is slow")
    assert "today" not in words(page).replace("Today", "")
    assert "the day before" not in page
    page = ann.get(find(r'<a href="([^"]*who=bob[^"]*)"', page)).text
    assert words(page).startswith("1 act yesterday by bob")
    assert "the bank books twice" not in page


def test_a_letter_is_named_with_what_was_done_to_it(browser, desk, record):
    record(letter(1))
    desk.notes.on_letters([1], "the bank knows", "ann")
    text = words(browser(Role.VIEWER).get("/activity").text)
    assert "ann note letter 1" in text
    assert "the bank knows" in text


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("who=ann", [0, 1, 3]),
        ("did=note", [0]),
        ("did=halt, resume", [1, 2]),
        ("who=bob&did=note", []),
        ("did=any", [0, 1, 2, 3]),
    ],
)
def test_it_is_filtered_by_who_and_by_what(browser, desk, said, found):
    for number, (by, what) in enumerate([("ann", "note"), ("ann", "halt"), ("bob", "resume"), ("ann", "policy")]):
        desk.trail.add(by, what, f"act {number}.")
    text = browser().get(f"/activity?{said}").text
    assert [number for number in range(4) if f"act {number}." in text] == found
    assert ("The whole audit log" in text) == (not found)


def test_older_pages_begin_where_the_one_before_ended_whatever_comes_meanwhile(browser, desk):
    for number in range(120):
        desk.trail.add("ann", "note", f"act {number}.")
    ann = browser()
    page = ann.get("/activity?who=ann").text
    seen = re.findall(r"act (\d+)\.", page)
    while older := re.search(r'<a href="([^"]*)">Older</a>', page):
        desk.trail.add("ann", "note", "meanwhile")
        page = ann.get(unescape(older[1])).text
        seen += re.findall(r"act (\d+)\.", page)
    assert seen == [str(number) for number in range(119, -1, -1)]


@pytest.mark.parametrize("said", ["before=x", "before=²", "before=" + "9" * 30, "did=nothing", "range=x"])
def test_an_address_that_means_nothing_is_refused_in_words(browser, said):
    assert browser().get(f"/activity?{said}").status_code == 400


@pytest.mark.parametrize(("role", "sees"), [(Role.VIEWER, ["ann"]), (Role.OPERATOR, ["ann"]), (Role.ADMIN, None)])
def test_only_an_admin_sees_the_sign_ins_and_accounts_of_others(browser, desk, role, sees):
    reader = browser(role)
    name = "ann" if role is Role.OPERATOR else str(role)
    for by in (name, "bob"):
        for what in ("sign-in", "sign-out", "user", "token"):
            desk.trail.add(by, what, f"{what} of {by}.")
        desk.trail.add(by, "halt", f"halt of {by}.")
    desk.trail.add("not signed in", "failed sign-in", "wrong password for bob")
    page = reader.get("/activity").text
    entries = reader.post("/activity/export", data={"token": reader.token, "format": "csv"}).text
    for text in (page, entries):
        assert f"sign-in of {name}." in text
        assert "halt of bob." in text
        assert ("sign-in of bob." in text) == (sees is None)
        assert ("token of bob." in text) == (sees is None)
        assert ("wrong password for bob" in text) == (sees is None)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_an_export_has_what_the_page_lists_all_of_it_and_the_log_says_who_took_it(browser, desk, act, kind):
    for number in range(120):
        act(2, said=f"act {number}, =1+1")
    act(40, said="too long ago")
    ann = browser()
    answer = ann.post("/activity/export", data={"token": ann.token, "format": kind, "range": "today", "who": "ann"})
    assert answer.headers["content-disposition"] == f'attachment; filename="activity.{kind}"'
    rows = json.loads(answer.text) if kind == "json" else [*csv.DictReader(io.StringIO(answer.text))]
    assert [each["said"] for each in rows] == [f"act {number}, =1+1" for number in range(119, -1, -1)]
    assert rows[0]["at"] == "2026-11-21T00:30:00.000+00:00"
    last = desk.trail.page(limit=1).entries[0]
    said = "120 lines of the audit log, by ann since 2026-11-21T00:00:00.000+00:00"
    assert (last.by, last.what, last.said) == ("ann", "export", said)


def test_an_export_is_bounded_and_says_how_many_there_are(browser, desk, monkeypatch):
    monkeypatch.setattr(activity_page, "MAX_EXPORTED", 2)
    for number in range(3):
        desk.trail.add("ann", "note", f"act {number}")
    ann = browser()
    answer = ann.post("/activity/export", data={"token": ann.token, "format": "csv"})
    assert answer.status_code == 400
    assert "These are 3 entries, and an export has 2 at most" in answer.text
    assert "3 entries are more than an export has (2)" in words(ann.get("/activity").text)
    assert ann.post("/activity/export", data={"token": ann.token, "format": "exe"}).status_code == 400


def test_a_spreadsheet_takes_nothing_that_people_wrote_for_a_formula():
    row = "".join(write_csv([AuditEntry(1, 0, "=cmd()", "note", "@SUM(1)", None, "-1", None, None)])).splitlines()[1]
    assert row == "1,1970-01-01T00:00:00.000+00:00,'=cmd(),note,'@SUM(1),,'-1,,"


def test_a_list_of_no_entries_is_json_too():
    assert json.loads("".join(write_json([]))) == []


def test_what_others_wrote_is_text(browser, desk):
    desk.trail.add(hostile_input.TEXT.replace("\x00", ""), "note", hostile_input.TEXT.replace("\x00", ""))
    ann = browser()
    hostile_input.check(ann.get("/activity").text)
    hostile_input.check(ann.get(f"/activity?who={quote(hostile_input.TEXT)}").text)
