"""A form that was filled in survives signing in: for who filled it in, and for nobody else."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.datastructures import QueryParams

from bridge.console import form_drafts
from bridge.console.asgi_app import build_application
from bridge.console.form_drafts import FormDraft, FormDrafts
from bridge.deadletters.accounts.user_account import Role
from tests.desk.letters import letter
from tests.web.site import Site, kept, sign_in

NOTE = "The till in Malmö writes a comma."
PICKED = {"scope": "ids", "ids": "1", "what": "replay"}


@pytest.fixture
def site(console, desk, record):
    """The console over a desk with a letter, as browsers ask it."""
    record(letter(1))
    found = Site.__new__(Site)
    found.console, found.database = console, desk.database
    found.app = build_application(console)
    found.user("ann", Role.OPERATOR)
    found.user("bob", Role.OPERATOR)
    return found


@pytest.fixture
def ann(site):
    """Ann's browser."""
    browser = site.browser()
    sign_in(browser, "ann")
    return browser


def fields(browser, page, action):
    """The hidden fields of a form."""
    (form,) = re.findall(rf'<form[^>]*action="{action}".*?</form>', browser.get(page).text, re.S)
    return dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form))


def then(answer):
    """Where somebody goes on after they have signed in."""
    assert answer.status_code == 303
    return parse_qs(urlsplit(answer.headers["location"]).query)["then"][0]


def sent_too_late(site, ann, path="/letters/1/notes", page="/letters/1", **typed):
    form = fields(ann, page, path)
    site.console.desk.users.sign_out_everywhere("ann", "the test")
    return ann.post(path, data=form | (typed or {"note": NOTE}))


def test_who_signs_in_again_finds_what_they_had_typed_and_nothing_was_sent(site, ann):
    there = then(sent_too_late(site, ann))
    assert NOTE not in there
    page = ann.get(sign_in(ann, "ann", then=there).headers["location"]).text
    assert "You have signed in again, and the form was not sent." in page
    assert f"{NOTE}</textarea>" in page
    assert site.console.desk.letters.one(1).trail == ()
    assert ann.post("/letters/1/notes", data=fields(ann, there, "/letters/1/notes") | {"note": NOTE}).status_code == 303


@pytest.mark.parametrize(
    ("path", "page", "typed", "found"),
    [
        ("/letters/1/edit", "/letters/1/edit", {"value": '{"amount": 7}', "why": "its vendor"}, '{"amount": 7}'),
        ("/groups/1/fixed", "/groups/1/fixed", {"version": "1.5.2"}, 'value="1.5.2"'),
        ("/groups/1/note", "/groups/1", {"said": "rolled out"}, 'value="rolled out"'),
        ("/plans/new", "/letters?status=any", PICKED, 'value="1" autocomplete="off" checked'),
    ],
)
def test_every_form_finds_its_way_back(site, ann, path, page, typed, found):
    there = then(sent_too_late(site, ann, path, page, **typed))
    assert there.startswith(page)
    answer = ann.get(sign_in(ann, "ann", then=there).headers["location"])
    assert answer.status_code == 200
    assert found in answer.text.replace("&#34;", '"')
    assert site.console.desk.plans.latest() == []


def test_nobody_else_who_signs_in_sees_any_of_it(site, ann):
    there = then(sent_too_late(site, ann))
    page = ann.get(sign_in(ann, "bob", then=there).headers["location"])
    assert page.status_code == 200
    assert NOTE not in page.text
    assert "You have signed in again" not in page.text


def test_it_is_shown_on_the_page_of_its_form_alone(site, ann, record):
    record(letter(2))
    there = then(sent_too_late(site, ann))
    sign_in(ann, "ann")
    assert NOTE not in ann.get(there.replace("/letters/1", "/letters/2")).text


def test_a_form_of_before_signing_in_anew_in_another_tab_is_looked_at_once_more(site, ann):
    form = fields(ann, "/letters/1", "/letters/1/notes")
    sign_in(ann, "ann")
    answer = ann.post("/letters/1/notes", data=form | {"note": NOTE})
    assert f"{NOTE}</textarea>" in ann.get(answer.headers["location"]).text
    assert site.console.desk.letters.one(1).trail == ()


@pytest.mark.parametrize("forged", ["", "ff", "0" * 64 + b"ann".hex(), "z" * 80])
def test_of_a_form_that_no_page_of_the_console_has_shown_nothing_is_kept(site, ann, forged):
    there = then(sent_too_late(site, ann, note=NOTE, mark=forged))
    assert there == "/letters/1#note"


def test_what_another_site_sends_is_not_kept(site, ann):
    form = fields(ann, "/letters/1", "/letters/1/notes")
    site.console.desk.users.sign_out_everywhere("ann", "the test")
    answer = ann.post("/letters/1/notes", data=form | {"note": NOTE}, headers={"origin": "https://evil.example"})
    assert then(answer) == "/"


def test_no_password_is_kept(site, ann):
    form = fields(ann, "/account", "/account/password") | {"password": "x", "new": kept("tractor violin lemon")}
    form |= fields(ann, "/letters/1", "/letters/1/notes")
    site.console.desk.users.sign_out_everywhere("ann", "the test")
    assert then(ann.post("/account/password", data=form)) == "/"


def test_what_is_kept_is_bounded_in_time_number_and_size():
    at = [0]
    found = FormDrafts(lambda: at[0])
    form = FormDraft("ann", "/letters/1", QueryParams({"note": NOTE}))
    first = found.keep(form)
    assert found.find_draft(first, "ann", "/letters/1") == form.fields
    assert NOTE not in repr(found._forms)
    for _ in range(form_drafts.MAX_DRAFTS):
        last = found.keep(form)
    assert found.find_draft(first, "ann", "/letters/1") is None
    assert found.find_draft(last, "ann", "/letters/1") == form.fields
    at[0] = form_drafts.DRAFT_MS + 1
    assert found.find_draft(last, "ann", "/letters/1") is None
    assert found.keep(form._replace(fields=QueryParams({"note": "x" * form_drafts.MAX_DRAFT_CHARACTERS}))) == ""


def test_a_form_that_makes_a_plan_makes_one_however_often_it_is_sent(site, ann):
    form = fields(ann, "/letters/1", "/plans/new") | {"what": "archive"}
    answers = [ann.post("/plans/new", data=form) for _ in range(2)]
    assert {each.headers["location"] for each in answers} == {"/plans/1"}
    # After signing in anew, too; another wish is another plan, and so is a page that is loaded again.
    sign_in(ann, "ann")
    anew = fields(ann, "/letters/1", "/plans/new") | {"what": "archive"}
    assert ann.post("/plans/new", data=anew | {"once": form["once"]}).headers["location"] == "/plans/1"
    assert (
        ann.post("/plans/new", data=anew | {"once": form["once"], "what": "discard"}).headers["location"] == "/plans/2"
    )
    assert ann.post("/plans/new", data=anew).headers["location"] == "/plans/3"
    assert len(site.console.desk.plans.latest()) == 3
