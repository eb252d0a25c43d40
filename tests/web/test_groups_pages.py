"""What pages of groups promise: what fails and how fast, in which versions, what to do next, and that once."""

import json
import re
from collections.abc import Iterator
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, update

from bridge.console.console import Console
from bridge.console.pages import charts
from bridge.console.pages import groups_page as pages
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import kind_rows, search_index
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.inspection.group_details import count_workers_by_version
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.failure_growth import HOUR
from bridge.deadletters.model.search_words import find_letter_words
from bridge.deadletters.model.stored_letter import LetterStatus, pack_headers
from bridge.deadletters.model.trait_comparison import LetterTrait
from bridge.settings.masked_fields import read_mask_rules
from tests.desk import rows
from tests.desk.test_unknown_outcomes import sent
from tests.web.signed_in_console import HANDLER, Person, desk_of

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    database = Database(f"sqlite:///{tmp_path}/desk.db")
    database.migrate()
    yield Console(desk_of(database, monkeypatch), "bridge @ kafka")
    database.close()


@pytest.fixture
def ann(console: Console) -> Person:
    return Person(console, "ann", Role.OPERATOR)


@pytest.fixture
def groups(console: Console) -> list[int]:
    """One with three open letters of two versions, and one that is resolved, with names that mean harm."""
    now = console.clock()
    with console.desk.database.writing() as connection:
        first, second = (rows.kind(connection, HANDLER, error_class="bank.Declined", version=each) for each in "12")
        other = rows.kind(connection, HOSTILE, error_class=HOSTILE, place=HOSTILE)
        for offset, of in enumerate((first, first, second)):
            rows.letter(connection, of, offset, failed_at=now)
        rows.letter(connection, other, 9, LetterStatus.RESOLVED, failed_at=now)
        kind_rows.add_failure_hours(connection, {(first, now // HOUR): 7, (second, now // HOUR - 2): 3})
        found = [rows.group_of(connection, each) for each in (first, other)]
        kind_rows.widen_group_times(connection, dict.fromkeys(found, (now - HOUR, now)))
    return found


def test_groups_with_open_letters_are_listed_with_their_picture_and_what_to_do_next(ann, groups):
    page = ann.get("/groups").text
    assert "1 group with open letters" in page
    for words in ("Declined", "orders/bank.py:pay", "1, 2", "Inspect", "There is no Redis"):
        assert words in page, words
    assert page.count("<rect x=") == 2
    assert "Failures an hour: none before, then 0, 0, 0, 3, 0, 7" in page


def test_all_groups_are_shown_where_that_is_asked_and_what_is_foreign_in_them_stays_text(ann, groups):
    page = ann.get("/groups?show=all").text
    assert "2 groups" in page
    assert "<img" not in page
    assert "&lt;img" in page
    assert "0 groups come back" in ann.get("/groups?show=come+back").text
    assert "0 groups" in ann.get("/groups?place=nowhere").text
    assert "1 group" in ann.get("/groups?place=BANK.DECLINED").text
    assert ann.get(f"/groups/{groups[1]}").text.count("<img") == 0
    assert ann.get("/groups?text=x").status_code == 400


def test_of_many_groups_a_page_is_shown_and_each_is_on_one_page(console, ann, monkeypatch):
    monkeypatch.setattr(pages, "LIST_ROWS", 3)
    with console.desk.database.writing() as connection:
        for number in range(7):
            of = rows.kind(connection, HANDLER, place=f"step{number}")
            for offset in range(1 + number // 2):
                rows.letter(connection, of, 10 * number + offset)
    page = ann.get("/groups?handler=" + HANDLER).text
    assert "7 groups with open letters" in page
    seen = [ids(page)]
    while following := re.search(r'<a href="([^"]+)" rel="next">', page):
        page = ann.get(unescape(following.group(1))).text
        seen.append(ids(page))
    assert [len(each) for each in seen] == [3, 3, 1]
    assert "7 to 7 of 7" in page
    assert len(set(chain(*seen))) == 7
    (back,) = re.findall(r'<a href="([^"]+)" rel="prev">', page)
    assert ids(ann.get(unescape(back)).text) == seen[1]


@pytest.fixture
def sorted_groups(console):
    """Three, whose order differs by each thing that a list may be ordered by."""
    now = console.clock()
    with console.desk.database.writing() as connection:
        for name, count, first, last in (("b.Beta", 3, 9, 1), ("c.Alpha", 1, 5, 3), ("a.Gamma", 2, 7, 5)):
            of = rows.kind(connection, HANDLER, error_class=name, place=f"{name}.py:step")
            for offset in range(count):
                rows.letter(connection, of, 10 * first + offset, failed_at=now - last * HOUR)
            times = {"first_at": now - first * HOUR, "last_at": now - last * HOUR}
            its = tables.groups.c.id == rows.group_of(connection, of)
            connection.execute(update(tables.groups).where(its).values(times))


def names(page: str) -> list[str]:
    return re.findall(r'<a href="/groups/\d+"><b><bdi>(\w+)</bdi></b>', page)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("open", ["Beta", "Gamma", "Alpha"]),
        ("count", ["Beta", "Gamma", "Alpha"]),
        ("newest", ["Beta", "Alpha", "Gamma"]),
        ("first", ["Alpha", "Gamma", "Beta"]),
        ("name", ["Alpha", "Beta", "Gamma"]),
        ("nonsense", ["Beta", "Gamma", "Alpha"]),
    ],
)
def test_groups_are_sorted_by_what_somebody_asks_for_on_all_pages(ann, sorted_groups, monkeypatch, sort, expected):
    page = ann.get(f"/groups?sort={sort}").text
    assert names(page) == expected
    assert page.count("aria-sort=") == 1
    monkeypatch.setattr(pages, "LIST_ROWS", 1)
    address, seen = f"/groups?sort={sort}", []
    while address:
        page = ann.get(address).text
        seen += names(page)
        following = re.search(r'<a href="([^"]+)" rel="next">', page)
        address = unescape(following.group(1)) if following else ""
    assert seen == expected


@pytest.mark.parametrize("before", ["0-0-0", "nothing", "[", "[1]", '["a",1]', "[" * 3_000, "[true,1,2]"])
def test_a_position_that_is_none_is_the_beginning(ann, sorted_groups, before):
    assert names(ann.get(f"/groups?before={before}").text) == ["Beta", "Gamma", "Alpha"]


def test_a_search_finds_groups_by_words_of_handler_exception_and_place(ann, sorted_groups):
    assert names(ann.get("/groups?place=ALPHA").text) == ["Alpha"]
    assert names(ann.get("/groups?place=charge+gamma.py").text) == ["Gamma"]
    assert names(ann.get("/groups?place=charge+nowhere").text) == []


def faults(console, messages, **other):
    """A group with a cause for each message, the first with most open letters."""
    with console.desk.database.writing() as connection:
        for number, message in enumerate(messages):
            of = rows.kind(connection, HANDLER, error_class="tasks.errors.Undecodable", cause=f"c{number}", **other)
            for offset in range(len(messages) - number):
                rows.letter(connection, of, 100 * number + offset, error_message=message)
        return rows.group_of(connection, of)


def test_causes_are_rows_below_their_group_named_by_what_differs(console, ann):
    group = faults(
        console,
        [
            "2 fault(s) in the value: total: Field required; lines.0.price: Input should be a valid number",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            "1 fault(s) in the value: currency: Field required",
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ],
    )
    page = ann.get("/groups").text
    causes = re.findall(r'<tr role="row" class="cause">(.*?)</tr>', page, re.S)
    shown = [unescape(re.sub(r"<[^>]+>", " ", each)) for each in causes]
    assert [each.split("  ")[0].strip() or each.strip() for each in map(str.strip, shown)] == [
        "total: Field required; lines.0.price: Input should be a valid number",
        "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "currency: Field required",
    ]
    for number in range(3):
        assert f'<a href="/letters?group={group}&amp;cause=c{number}&amp;status=open">' in causes[number]
    assert f'<a href="/groups/{group}#h-causes">1 more cause</a>' in causes[2]
    listed = ann.get(f"/letters?group={group}&cause=c2&status=open").text
    assert "2 letters match" in listed


def test_a_group_with_one_cause_has_its_message_in_its_row_and_no_rows_below_it(console, ann):
    faults(console, ["KeyError: 'iban'"])
    page = ann.get("/groups").text
    assert 'class="cause"' not in page
    assert "KeyError: &#39;iban&#39;" in page


def test_a_list_of_groups_reads_the_database_as_often_for_many_as_for_few(console, ann):
    def count(address):
        asked = []
        event.listen(console.desk.database._engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
        assert ann.get(address).status_code == 200
        return len(asked)

    faults(console, ["a", "b"], place="one")
    few = count("/groups")
    for number in range(30):
        faults(console, ["a", "b"], place=f"place {number}")
    # Each call adds a listener that counts for itself.
    assert count("/groups") == few


def test_several_groups_are_replayed_or_discarded_by_one_plan_of_all_their_open_letters(console, ann, sorted_groups):
    first, _, third = ids(ann.get("/groups?sort=name").text)
    form = ann.form("/groups", "/plans/new") | {"group": [first, third]}
    for what, number in (("replay", 1), ("discard", 2)):
        made = ann.post("/plans/new", **form | {"once": what}, what=what)
        assert made.headers["location"] == f"/plans/{number}"
        plan = console.desk.plans.one(number)
        assert (plan.asked["groups"], plan.asked["statuses"]) == ([int(first), int(third)], ["open"])
        assert plan.counts.letters == 3
    edit = ann.post("/plans/new", **form | {"once": "3"}, what="patch")
    assert edit.headers["location"] == f"/plans/patch?group={first}&group={third}&status=open"


@pytest.mark.parametrize("what", ["replay", "discard", "patch", "fixed"])
def test_without_a_ticked_group_nothing_is_meant(console, ann, sorted_groups, what):
    answer = ann.post("/plans/new", **ann.form("/groups", "/plans/new"), what=what)
    assert answer.status_code == 400
    assert "No group is ticked" in answer.text
    assert console.desk.plans.latest() == []


def test_several_groups_are_marked_as_fixed_in_one_version_once(console, ann, sorted_groups):
    first, second, third = ids(ann.get("/groups?sort=name").text)
    form = ann.form("/groups", "/plans/new") | {"group": [first, second]}
    there = ann.post("/plans/new", **form, what="fixed").headers["location"]
    assert there == f"/groups/fixed?group={first}&group={second}"
    marking = ann.form(there, "/groups/fixed") | {"group": [first, second]}
    for _ in range(2):
        assert (
            ann.post("/groups/fixed", **marking, version="1.5.0").headers["location"] == "/groups?show=marked+as+fixed"
        )
    marked = [console.desk.groups.one(int(each)) for each in (first, second, third)]
    assert [(each.fixed_in, each.fixed_by) for each in marked] == [("1.5.0", "ann")] * 2 + [(None, None)]
    assert [act.what for act in console.desk.notes.of_group(int(first))] == ["fixed"]


def test_of_several_groups_none_is_marked_where_one_has_changed_since(console, ann, sorted_groups):
    first, second, _ = ids(ann.get("/groups?sort=name").text)
    there = f"/groups/fixed?group={first}&group={second}"
    marking = ann.form(there, "/groups/fixed") | {"group": [first, second]}
    console.desk.groups.fixed(int(second), "1.4.9", "bob")
    answer = ann.post("/groups/fixed", **marking, version="1.5.0")
    assert answer.status_code == 409
    assert f"Group {second}: bob has marked it as fixed in 1.4.9" in answer.text
    assert 'value="1.5.0"' in answer.text
    assert console.desk.groups.one(int(first)).fixed_in is None
    assert ann.post("/groups/fixed", **marking | {f"act-{second}": ""}, version=" ").status_code in (400, 409)
    assert ann.get("/groups/fixed").status_code == 400
    assert ann.get("/groups/fixed?group=999").status_code == 404


def test_a_viewer_has_nothing_to_tick(console, sorted_groups):
    page = Person(console, "eve", Role.VIEWER).get("/groups").text
    assert "checkbox" not in page
    assert "/plans/new" not in page
    assert "need the role operator" in page


def ids(page: str) -> list[str]:
    """Of the groups that a page lists."""
    return re.findall(r'<a href="/groups/(\d+)"><b>', page)


def test_a_group_shows_its_counts_versions_and_letters(console, ann, groups):
    with console.desk.database.writing() as connection:
        connection.execute(update(tables.letters).where(tables.letters.c.id == 1).values(failures=2))
    page = ann.get(f"/groups/{groups[0]}").text
    assert re.search(r"Died again</span></dt><dd>1 ", page)
    row = r'scope="row">(?:<bdi>)?(\w+)(?:</bdi>)?</th>.*?"Failed">(.*?)</td>.*?"Open">(.*?)</td>'
    failed = re.findall(row, page, re.DOTALL)
    assert failed == [("2", "1", "1"), ("1", "2", "2")]
    assert "died again after a replay" in page
    assert all(f'href="/letters/{id_}' in page for id_ in (1, 2, 3))


def test_a_version_that_failed_in_this_hour_is_not_said_to_have_failed_in_the_future(console, ann, groups):
    page = ann.get(f"/groups/{groups[0]}").text
    (last,) = re.findall(r'First seen .*?, last <time datetime="(.*?)"', page)
    ends = re.findall(r'failed from .*? to <time datetime="(.*?)"', page)
    assert len(ends) == 2
    assert max(ends) <= last


def test_a_replay_of_a_group_is_planned_from_its_page(console, ann, groups):
    address = f"/groups/{groups[0]}"
    made = ann.post("/plans/new", **ann.form(address, "/plans/new"), what="replay")
    assert made.headers["location"] == "/plans/1?seen=3"
    assert console.desk.plans.one(1).asked["groups"] == [groups[0]]
    assert "Replay 3 letters?" in ann.get("/plans/1").text


def test_a_group_that_a_plan_has_is_to_be_watched(console, ann, groups):
    with console.desk.database.writing() as connection:
        kind_id = rows.kind(connection, HANDLER, error_class="bank.Declined", version="1")
        rows.letter(connection, kind_id, 77, LetterStatus.REPLAYING, plan_id=118)
    for page in ("/groups", f"/groups/{groups[0]}"):
        text = ann.get(page).text
        assert "Watch plan 118" in text
        assert 'href="/plans/118"' in text


def test_a_group_is_marked_as_fixed_once_and_that_is_taken_back(console, ann, groups):
    address = f"/groups/{groups[0]}"
    form = ann.form(f"{address}/fixed", f"{address}/fixed")
    for _ in range(2):
        assert ann.post(f"{address}/fixed", **form, version="1.5.0").status_code == 303
    group = console.desk.groups.one(groups[0])
    assert (group.fixed_in, group.fixed_by) == ("1.5.0", "ann")
    assert [act.what for act in console.desk.notes.of_group(groups[0])] == ["fixed"]
    page = ann.get(address).text
    assert "are replayed automatically once all workers have 1.5.0" in page
    undo = ann.form(address, f"{address}/not-fixed")
    for _ in range(2):
        assert ann.post(f"{address}/not-fixed", **undo).status_code == 303
    assert console.desk.groups.one(groups[0]).fixed_in is None
    assert [act.what for act in console.desk.notes.of_group(groups[0])] == ["fixed", "not fixed"]


@pytest.mark.parametrize(("way", "status"), [("resolve", "resolved"), ("reopen", "open")])
def test_a_letters_page_lets_a_person_say_how_a_replay_ended_of_which_nobody_could_tell(console, ann, way, status):
    _, (id_, under_way) = sent(console.desk.database, PlanItemState.UNKNOWN, PlanItemState.SENT)
    address = f"/letters/{id_}"
    form = ann.form(address, f"{address}/resolve")
    assert f'formaction="{address}/reopen"' in ann.get(address).text
    assert ann.post(f"{address}/{way}", **form, why=" ").status_code == 400
    for _ in range(2):
        assert ann.post(f"{address}/{way}", **form, why="the bank says so").status_code == 303
    shown = console.desk.letters.one(id_)
    assert (shown.listed.status, shown.trail[-1].what) == (status, way)
    assert "It ran: resolve it" not in ann.get(address).text
    assert ann.post(f"/letters/{under_way}/{way}", why="a guess").status_code == 409


def test_a_cause_is_marked_as_fixed_alone_and_that_is_taken_back(console, ann, groups):
    group, address = groups[0], f"/groups/{groups[0]}"
    with console.desk.database.writing() as connection:
        rows.letter(connection, rows.kind(connection, HANDLER, error_class="bank.Declined", cause="aaa"), 50)
        rows.letter(connection, rows.kind(connection, HANDLER, error_class="bank.Declined", cause="bbb"), 51)
    assert f'href="{address}/fixed?cause=aaa"' in ann.get(address).text
    form = ann.form(f"{address}/fixed?cause=aaa", f"{address}/fixed")
    for _ in range(2):
        assert ann.post(f"{address}/fixed", **form, version="1.5.0").status_code == 303
    found = console.desk.groups.one(group)
    assert found.fixed_in is None
    assert [(each.cause, each.fixed_in, each.fixed_by) for each in found.cause_fixes] == [("aaa", "1.5.0", "ann")]
    assert "a cause is fixed" in ann.get("/groups").text
    undo = ann.form(address, f"{address}/not-fixed")
    assert ann.post(f"{address}/not-fixed", **undo).status_code == 303
    assert console.desk.groups.one(group).cause_fixes == ()
    assert [act.said for act in console.desk.notes.of_group(group)] == ["cause aaa in 1.5.0", "cause aaa"]


def test_of_two_who_mark_a_group_at_once_the_second_is_told_and_keeps_what_was_typed(console, ann, groups):
    address, bob = f"/groups/{groups[0]}/fixed", Person(console, "bob", Role.OPERATOR)
    form = bob.form(address, address)
    ann.post(address, **ann.form(address, address), version="1.5.0")
    answer = bob.post(address, **form, version="1.6.0")
    assert answer.status_code == 409
    assert "ann has marked it as fixed in 1.5.0 at" in answer.text
    assert 'value="1.6.0"' in answer.text
    assert console.desk.groups.one(groups[0]).fixed_in == "1.5.0"


def test_who_takes_a_mark_back_too_late_is_not_offered_to_mark_the_group(console, ann, groups):
    address, bob = f"/groups/{groups[0]}", Person(console, "bob", Role.OPERATOR)
    marking = ann.form(f"{address}/fixed", f"{address}/fixed")
    ann.post(f"{address}/fixed", **marking, version="1.5.0")
    undo = bob.form(address, f"{address}/not-fixed")
    ann.post(f"{address}/not-fixed", **ann.form(address, f"{address}/not-fixed"))
    ann.post(f"{address}/fixed", **ann.form(f"{address}/fixed", f"{address}/fixed"), version="1.6.0")
    answer = bob.post(f"{address}/not-fixed", **undo)
    assert answer.status_code == 409
    assert "Somebody was quicker" in answer.text
    assert f'action="{address}/not-fixed"' in answer.text
    assert f'action="{address}/fixed"' not in answer.text
    assert console.desk.groups.one(groups[0]).fixed_in == "1.6.0"


def test_no_version_is_none(ann, groups):
    address = f"/groups/{groups[0]}/fixed"
    answer = ann.post(address, **ann.form(address, address), version=" ")
    assert (answer.status_code, "In which version" in answer.text) == (400, True)


def test_notes_stand_with_the_group_as_text(ann, groups):
    address = f"/groups/{groups[0]}"
    assert ann.post(f"{address}/note", said=HOSTILE).headers["location"] == f"{address}#h-trail"
    page = ann.get(address).text
    assert "&lt;img" in page
    assert "<img" not in page
    assert ann.post(f"{address}/note", said=" ").status_code == 400


def test_a_viewer_sees_groups_without_buttons(console, groups):
    page = Person(console, "eve", Role.VIEWER).get(f"/groups/{groups[0]}").text
    assert "You can read here" in page
    assert "/plans/new" not in page
    assert "/fixed" not in page


def test_pictures_show_what_is_small_beside_what_is_large():
    found = charts.build_bars([0, 1, 10_000])
    assert [bar.height for bar in found] == [1.0, 23.0]
    assert charts.build_bars([0] * 24) == []
    shares = charts.build_shares({"good": 1, "bad": 0, "rest": 3})
    assert [(share.look, share.x, share.width) for share in shares] == [("good", 0.0, 25.0), ("rest", 25.0, 75.0)]


def test_versions_are_counted_of_the_workers_of_a_group_alone():
    told = [
        {"group": "a", "handlers": ["h", "i"], "handler_versions": {"h": "1"}},
        {"group": "a", "handlers": ["h"], "handler_versions": {"h": "1"}},
        {"group": "b", "handlers": ["h"], "handler_versions": {"h": "2"}},
        json.loads('{"handlers": ["h"]}'),
    ]
    assert count_workers_by_version("a", told) == {"h": {"1": 2, "": 1}, "i": {"": 1}}


def test_a_groups_page_has_its_last_message_and_what_they_have_in_common_when_somebody_asks(console, ann, groups):
    with console.desk.database.writing() as connection:
        kind_id = rows.kind(connection, HANDLER, error_class="bank.Declined", version="1")
        value = json.dumps({HOSTILE: HOSTILE}).encode()
        said = f"the last: {HOSTILE}"
        for offset in range(50, 60):
            at = console.clock() + offset
            rows.letter(
                connection, kind_id, offset, value=value, value_size=len(value), error_message=said, failed_at=at
            )
    page = ann.get(f"/groups/{groups[0]}").text
    assert re.search(r'id="h-last".*?the last: &lt;img', page, re.DOTALL)
    assert f'href="/groups/{groups[0]}/common"' in page
    common = ann.get(f"/groups/{groups[0]}/common").text
    assert "Traits that set 13 letters apart" in common
    assert "Handled records are not compared." in common
    assert "<img" not in common
    assert re.search(r'data-l="Value"><bdi>&lt;img.*?data-l="Of these">10 <span class="sub">76.9 %', common)
    assert ann.get("/groups/999/common").status_code == 404
    assert "There is no open letter" in ann.get(f"/groups/{groups[1]}/common").text


def test_a_trait_links_to_the_open_letters_that_have_it_unless_a_role_may_not_search_by_it(console, ann, groups):
    headers = pack_headers([("tenant", b"blue")])
    with console.desk.database.writing() as connection:
        kind_id = rows.kind(connection, HANDLER, error_class="bank.Declined", version="1")
        for offset in range(50, 60):
            value = b'{"order": {"currency": "EUR"}}'
            said: dict[str, Any] = {"value": value, "value_size": len(value), "headers": headers}
            said |= {"key": b"4711", "key_digest": key_digest(b"4711"), "failed_at": console.clock() + offset}
            id_ = rows.letter(connection, kind_id, offset, **said)
            search_index.index_letters(connection, [(id_, find_letter_words("", None, (("tenant", b"blue"),), None))])
    page = ann.get(f"/groups/{groups[0]}/common").text
    links = [unescape(link) for link in re.findall(r'data-l="Value"><a href="([^"]*)"', page)]
    of_group = f"/letters?group={groups[0]}&status=open"
    for trait in ("value=order.currency%3DEUR", "header=tenant%3Dblue", "key=4711"):
        assert f"{of_group}&{trait}" in links, trait
        assert "10 letters match" in ann.get(f"{of_group}&{trait}").text, trait


def test_a_trait_that_a_role_may_not_search_by_is_no_link():
    masks = LetterMasks(read_mask_rules("refunds: order.currency"))
    trait = LetterTrait("field", "order.currency", "EUR", 3, 3, 0, 3)
    assert pages.address_group_trait(7, trait, masks) is None
    assert pages.address_group_trait(7, trait, NO_MASKS) == "/letters?group=7&status=open&value=order.currency%3DEUR"
    for strange in ("a=b", "a..b", ""):
        assert pages.address_group_trait(7, trait._replace(name=strange), NO_MASKS) is None
    assert pages.address_group_trait(7, trait._replace(says=None), NO_MASKS) is None
    assert pages.address_group_trait(7, trait._replace(what="partition", name="orders"), NO_MASKS) is None


def test_a_group_has_the_command_of_a_shadow_replay_and_the_last_result(console, ann, groups):
    address, command = f"/groups/{groups[0]}", f"bridge deadletters shadow --group {groups[0]}"
    assert f"<code>{command}</code> <button" in ann.get(address).text
    assert "The last shadow replay" not in ann.get(address).text
    for said in ("0 of 3 letters would pass", HOSTILE):
        console.desk.notes.on_group(groups[0], said, "bo", "shadow")
    page = ann.get(address).text
    assert "<b>The last shadow replay:</b>" in page
    assert "&lt;img" in page
    assert "<img" not in page
    # Letters that are not open are not replayed.
    assert "deadletters shadow" not in ann.get(f"/groups/{groups[1]}").text


def test_the_preview_of_a_replay_has_the_command_of_a_shadow_replay(ann, groups):
    made = ann.post("/plans/new", what="replay", scope="filter", group=str(groups[0]))
    page = ann.get(made.headers["location"]).text
    assert "<code>bridge deadletters shadow --plan 1</code> <button" in page
