"""What is promised of a patch over letters: what it changes is seen of all of them before anything is sent."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest

from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import plan_item_rows, plan_rows
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.replay import copy_action
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from tests.desk.letters import HANDLER, letter
from tests.web.signed_in_console import desk_of

PATCH = '[{"op": "replace", "path": "/amount", "value": 12}]'


@pytest.fixture
def ann(browser, console, monkeypatch):
    """Somebody at a console whose desk cannot ask Kafka."""
    quiet = desk_of(console.desk.database, monkeypatch)
    console.desk = replace(console.desk, settings=quiet.settings)
    return browser()


def some(record):
    values = (b'{"amount":"many"}', b'{"amount":12}', b"no json", b'{"amount":"x","id":1.10}')
    record(*(letter(source, value=value, failed_at=1_000 + source) for source, value in enumerate(values)))


def hidden(page, action):
    forms = re.findall(r"<form.*?</form>", page, re.DOTALL)
    (form,) = [each for each in forms if f'action="{action}"' in each]
    return {
        unescape(name): unescape(value)
        for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
    }


def plain(page):
    """Without what keeps foreign text apart."""
    return re.sub(r"</?bdi>", "", page)


def planned(ann, address="/plans/patch?status=open", **fields):
    form = hidden(ann.get(address).text, "/plans/patch")
    return ann.post("/plans/patch", data=form | {"patch": PATCH, "do": "plan"} | fields)


def test_what_is_chosen_in_the_list_goes_on_to_a_patch(ann, record):
    some(record)
    form = hidden(ann.get(f"/letters?handler={HANDLER}").text, "/plans/new")
    by_filter = ann.post("/plans/new", data=form | {"what": "patch", "scope": "filter"})
    assert (by_filter.status_code, by_filter.headers["location"]) == (
        303,
        f"/plans/patch?handler={HANDLER}&status=open",
    )
    ticked = ann.post("/plans/new", data=form | {"what": "patch", "scope": "ids", "ids": "1,4"})
    assert ticked.headers["location"] == "/plans/patch?id=1&id=4"
    page = ann.get("/plans/patch?id=1&id=4").text
    assert "Patch and replay 2 letters" in page
    assert "1.10" in page, "the newest of them as it is"


def test_a_patch_is_tried_on_the_newest_letters_before_there_is_a_plan(ann, record, desk):
    some(record)
    form = hidden(ann.get("/plans/patch?status=open").text, "/plans/patch")
    said = ann.post("/plans/patch/check", data=form | {"patch": PATCH}).text
    assert "<ins>12</ins>" in plain(said)
    assert "Letter 3 would be left out:</b> no JSON that can be patched" in plain(said)
    assert "Letter 2 would be left out:</b> the patch changes nothing of it" in plain(said)
    assert "Plan a replay of 4 letters, patched…" in said
    wrong = ann.post("/plans/patch/check", data=form | {"patch": '[{"op": "turn"}]'}).text
    assert "Operation 1" in unescape(wrong)
    assert "Plan a replay" not in wrong
    without_a_script = ann.post("/plans/patch", data=form | {"patch": PATCH, "do": "check"}).text
    assert "<ins>12</ins>" in plain(without_a_script)
    assert unescape(re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", without_a_script)[0]) == PATCH
    assert desk.plans.latest() == []


def test_a_plan_of_it_shows_what_changes_and_why_others_are_left_out_and_sends_nothing_yet(ann, record, desk):
    some(record)
    answer = planned(ann, why="the client sent words")
    assert answer.status_code == 303, answer.text
    plan = desk.plans.one(1)
    assert (plan.state, plan.why, plan.asked["patch"]) == (PlanState.PLANNED, "the client sent words", PATCH)
    page = unescape(ann.get(answer.headers["location"]).text)
    assert "Replay 2 of the 4 letters that matched, each with another value?" in page
    for words in (
        "The patch changes nothing of them",
        "They cannot be patched",
        "What changes",
        "letter 1",
        "letter 4",
    ):
        assert words in page, words
    assert page.count("<ins>") == 2
    assert f"Only {HANDLER} runs" in plain(page)
    assert "Already done" not in page, "which was not asked"
    assert PATCH in page
    assert 'href="/letters?status=open"' in page, "what was asked for"
    assert "each with another value" in ann.get("/plans").text
    applied = ann.post("/plans/1/apply", data=hidden(ann.get("/plans/1").text, "/plans/1/apply") | {"pace": "all"})
    assert applied.status_code == 303
    assert "<ins>" in ann.get("/plans/1").text, "also of one that is applied"


def test_differences_come_a_page_at_a_time(ann, record, desk):
    record(*(letter(number, value=json.dumps({"amount": f"{number}"}).encode()) for number in range(25)))
    planned(ann)
    first = ann.get("/plans/1").text
    assert "The first 3 of 25 letters" in first
    page = ann.get("/plans/1/differences").text
    assert page.count("<ins>") == 20
    (more,) = re.findall(r'href="([^"]*)" rel="next"', page)
    rest = ann.get(more).text
    assert (rest.count("<ins>"), "No more." in rest) == (5, True)
    assert ann.get("/plans/999/differences").status_code == 404
    desk.plans.draft(PlanKind.ARCHIVE, LetterFilter(ids=(1,)), "ann")
    assert "changes no value" in ann.get("/plans/2/differences").text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"patch": ""}, "no JSON"),
        ({"patch": '[{"op": "turn", "path": "/x"}]'}, "Operation 1"),
        ({"force": "on"}, "only with a reason"),
    ],
)
def test_what_is_no_patch_makes_no_plan_and_what_was_typed_stays(ann, record, desk, fields, words):
    some(record)
    answer = planned(ann, **fields)
    assert (answer.status_code, words in unescape(answer.text)) == (400, True), answer.text
    assert unescape(fields.get("patch", PATCH)) in unescape(answer.text)
    assert desk.plans.latest() == []


def test_a_form_sent_twice_makes_one_plan(ann, record, desk):
    some(record)
    form = hidden(ann.get("/plans/patch?status=open").text, "/plans/patch") | {"patch": PATCH, "do": "plan"}
    first, second = (ann.post("/plans/patch", data=form) for _ in range(2))
    assert first.headers["location"] == second.headers["location"]
    assert len(desk.plans.latest()) == 1


def test_what_a_patch_says_is_harmless(ann, record):
    some(record)
    bad = '[{"op": "add", "path": "/amount", "value": "<script>alert(1)</script>"}]'
    form = hidden(ann.get("/plans/patch").text, "/plans/patch")
    assert "<script>alert" not in ann.post("/plans/patch/check", data=form | {"patch": bad}).text
    page = ann.get(planned(ann, patch=bad, force="on", why="a look").headers["location"]).text
    assert page.count("&lt;script&gt;alert(1)") == 4
    assert "<script>alert" not in page


# Copies, and ranges that are sent again


def test_a_copy_says_where_to_and_that_nothing_changes_here(ann, record, desk, monkeypatch):
    some(record)
    monkeypatch.setattr(copy_action.LetterCopies, "_check", lambda *_, **__: None)
    desk.copies.plan(LetterFilter(), "sandbox", None, PlanOptions(), "ann", "for the vendor")
    page = plain(ann.get("/plans/1").text)
    for words in (
        "Copy 4 letters to sandbox?",
        "marked as a copy",
        "Nothing changes here",
        ">Copy 4 letters to sandbox<",
    ):
        assert words in page, words
    assert "leave the lists of open letters" not in page
    assert "In another plan" not in page
    listed = plain(ann.get("/plans").text)
    assert "Copy 4 letters to sandbox" in listed
    desk.plans.approve(1, "ann")
    assert "Plan 1: copy 4 letters to sandbox" in plain(ann.get("/plans/1").text)


def test_a_range_sent_again_says_which_how_its_deliveries_stand_and_what_is_sent(ann, desk, browser):
    range_ = RedriveRequest("orders", "2026-11-20T08:00:00+00:00", "latest", (), (HANDLER,), b"secret-key")
    with desk.database.writing() as connection:
        id_, _ = plan_rows.add_plan(
            connection, PlanKind.REDRIVE, "ann", "the cards were down", range_.to_data(), PlanOptions(again=True)
        )
        plan_item_rows.add_items(
            connection, id_, [PlanItem(at, None, f"orders-0-{at}:{HANDLER}", 0) for at in range(1, 31)], canary=False
        )
        plan_rows.note_plan_counts(
            connection, id_, PlanCounts(letters=30, stands={HANDLER: {"done": 20, "dead": 10, "open": 4}})
        )
    page = plain(ann.get("/plans/1").text)
    for words in (
        "Send 30 deliveries again?",
        "topic orders from 2026-11-20T08:00:00+00:00 to latest",
        "offsets stay as they are",
        "run a second time",
        "not read yet: it goes out by itself",
        ">Send 30 deliveries again<",
        'value="canary" checked',
    ):
        assert words in page, words
    assert "secret-key" not in page
    assert "leave the lists of open letters" not in page
    form = hidden(ann.get("/plans/1").text, "/plans/1/apply")
    assert ann.post("/plans/1/apply", data=form | {"pace": "canary"}).status_code == 303
    assert desk.plans.one(1).options.canary
    page = ann.get("/plans/1").text
    assert "Plan 1: send 30 deliveries again" in plain(page)
    assert "leaves 30 deliveries as they are" in page
    assert "Send 30 deliveries again" in plain(browser(Role.VIEWER).get("/plans").text)


def test_a_plan_that_is_still_being_made_says_so(ann, desk):
    with desk.database.writing() as connection:
        id_, _ = plan_rows.add_plan(
            connection, PlanKind.REPLAY, "ann", "", {"filter": {}, "patch": PATCH}, PlanOptions()
        )
        plan_rows.change_plan_state(connection, id_, [PlanState.PLANNED], PlanState.MAKING)
    page = ann.get("/plans/1").text
    assert "Plan 1 is being made" in page
    assert "make it again" in page
