"""What is promised after an act: the next page says what was done, once, and offers the opposite act if it has one."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from bridge.console.auth.authorization import Principal
from bridge.console.confirmation import MAX_COOKIE, SHOWN_MS, Confirmation, UndoForm, seal, unseal
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.model.bulk_plan import PlanKind, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from tests.desk.letters import letter
from tests.web import hostile_input
from tests.web.site import Site

ANN = Principal("ann", Role.OPERATOR, token="t" * 64)
HALTED = Confirmation("Halted orders.", UndoForm("Resume", "/topics/orders/resume", {"seen": "x", "why": "y"}))


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


def find_undo(page: str) -> tuple[str, dict[str, str]] | None:
    """The form of the opposite act, as a browser would send it."""
    found = re.search(r'<div class="say is-good done".*?</div></div>', page, re.S)
    assert found, "nothing is said"
    form = re.search(r'action="([^"]*)"', found[0])
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', found[0])
    return form and (unescape(form[1]), {name: unescape(value) for name, value in fields})


def require_undo(page: str) -> tuple[str, dict[str, str]]:
    """The same, of a page that has one."""
    found = find_undo(page)
    assert found
    return found


def test_a_confirmation_is_read_by_its_own_session_for_a_minute():
    sealed = seal(HALTED, ANN, 1_000)
    assert unseal(sealed, ANN, 1_000 + SHOWN_MS) == HALTED
    assert unseal(sealed, ANN, 1_001 + SHOWN_MS) is None
    assert unseal(sealed, ANN, 999) is None


@pytest.mark.parametrize(
    "who", [ANN._replace(token="u" * 64), ANN._replace(name="bob"), ANN._replace(token="")], ids=repr
)
def test_no_other_session_reads_it(who):
    assert unseal(seal(HALTED, ANN, 0), who, 0) is None


def test_one_that_was_changed_or_made_up_is_none():
    sealed = seal(HALTED, ANN, 0)
    for other in ("", "x", ".", sealed[1:], sealed[:-1], f"x{sealed}", sealed.replace(".", "A.", 1)):
        assert unseal(other, ANN, 0) is None


def test_an_opposite_act_that_no_cookie_can_hold_is_left_out():
    undo = UndoForm("Put it back", "/", {"value": "x" * MAX_COOKIE})
    sealed = seal(Confirmation("y" * 10_000, undo), ANN, 0)
    assert len(sealed) < 4_000
    assert unseal(sealed, ANN, 0) == Confirmation("y" * 300)


@pytest.fixture
def applied(desk: Any, record: Callable[..., None]) -> Callable[[PlanKind], int]:
    """Applies a plan of three letters."""

    def made(kind: PlanKind) -> int:
        record(*(letter(number) for number in range(1, 4)))
        return int(desk.plans.draft(kind, LetterFilter(), "ann").id)

    return made


def decide(browser: Any, id_: int, act: str, **form: str) -> Any:
    page = browser.get(f"/plans/{id_}").text
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page[page.index("<main") :]))
    return browser.post(f"/plans/{id_}/{act}", data={**{k: unescape(v) for k, v in hidden.items()}, **form})


def test_a_plan_is_stopped_and_continued_by_the_buttons_of_what_was_done(browser, desk, applied):
    ann, id_ = browser(), applied(PlanKind.ARCHIVE)
    answer = decide(ann, id_, "apply", why="they are done")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/plans/{id_}")
    page = ann.get(f"/plans/{id_}").text
    assert f"Applied plan {id_}. Stop it" in words(page)
    for act, said in (("stop", f"Stopped plan {id_}. Continue it"), ("apply", f"Resumed plan {id_}. Stop it")):
        address, fields = require_undo(page)
        assert address == f"/plans/{id_}/{act}"
        assert ann.post(address, data=fields).status_code == 303
        page = ann.get(f"/plans/{id_}").text
        assert said in words(page)
    assert desk.plans.one(id_).state is PlanState.APPLYING


def test_it_is_said_once_and_not_to_somebody_else_in_the_same_browser(browser, applied):
    ann, id_ = browser(), applied(PlanKind.ARCHIVE)
    decide(ann, id_, "apply", why="they are done")
    # A part of a page does not take it.
    assert ann.get("/letters/1/elsewhere").status_code == 200
    assert "Applied plan" in ann.get("/letters").text
    assert "Applied plan" not in ann.get(f"/plans/{id_}").text
    decide(ann, id_, "stop")
    admin = browser(Role.ADMIN)
    for cookie in ann.cookies.jar:
        if "done" in cookie.name:
            admin.cookies.set(cookie.name, cookie.value)
    assert "Stopped plan" not in admin.get(f"/plans/{id_}").text


def test_a_discard_has_its_own_ten_seconds_and_no_other_way_back(browser, applied):
    ann, id_ = browser(), applied(PlanKind.DISCARD)
    assert decide(ann, id_, "apply", why="they are done", count="3").status_code == 303
    page = ann.get(f"/plans/{id_}").text
    assert f"Applied plan {id_}." in words(page)
    assert find_undo(page) is None


def test_a_plan_that_is_thrown_away_is_not_offered_again(browser, applied):
    ann, id_ = browser(), applied(PlanKind.ARCHIVE)
    assert decide(ann, id_, "stop").status_code == 303
    page = ann.get(f"/plans/{id_}").text
    assert f"Thrown away: plan {id_}." in words(page)
    assert find_undo(page) is None


def test_a_group_is_marked_as_fixed_and_the_mark_taken_back_and_put_back(browser, desk, record):
    record(letter(1))
    ann, group = browser(), desk.groups.one(1)
    page = ann.get("/groups/1/fixed").text
    act = unescape(re.findall(r'name="act" value="([^"]*)"', page)[0])
    ann.post("/groups/1/fixed", data={"token": ann.token, "act": act, "version": "1.5.1"})
    for fixed_in in ("1.5.1", None, "1.5.1"):
        assert desk.groups.one(1).fixed_in == fixed_in
        address, fields = require_undo(ann.get(f"/groups/{group.id}").text)
        assert ann.post(address, data=fields).status_code == 303


def test_a_note_has_no_opposite(browser, record):
    record(letter(1))
    ann = browser()
    ann.post("/letters/1/notes", data={"token": ann.token, "note": "the bank knows"})
    page = ann.get("/letters/1").text
    assert "Noted on letter 1." in words(page)
    assert find_undo(page) is None


def test_a_role_is_changed_and_put_back_by_the_admin_and_by_nobody_else(site: Site):
    site.user("ann", Role.OPERATOR)
    admin = site.signed_in(Role.ADMIN)
    id_ = next(each.id for each in site.console.desk.users.all() if each.name == "ann")
    token = re.findall(r'name="token" value="([^"]*)"', admin.get(f"/admin/users/{id_}").text)[0]
    answer = admin.post(f"/admin/users/{id_}/role", data={"token": token, "role": "viewer", "was": "operator"})
    assert answer.status_code == 303
    page = admin.get(f"/admin/users/{id_}").text
    assert "ann is viewer now. Make it operator again" in words(page)
    address, fields = require_undo(page)
    viewer = site.signed_in(Role.VIEWER)
    assert viewer.post(address, data=fields).status_code == 403
    assert admin.post(address, data=fields).status_code == 303
    assert site.console.desk.admins.one(id_).role == "operator"
    site.console.desk.users.give_role("ann", Role.ADMIN, "eve")
    # What it would take back is not there any more: it is refused, as any form that is late.
    assert admin.post(address, data={**fields, "role": "viewer"}).status_code == 409


def test_what_others_wrote_is_text(browser, desk, console):
    ann = browser()
    undo = UndoForm(hostile_input.TEXT, "/", {hostile_input.TEXT: hostile_input.TEXT})
    who = Principal("ann", Role.OPERATOR, ann.token)
    ann.cookies.set("__Host-bridge-done", seal(Confirmation(hostile_input.TEXT, undo), who, console.clock()))
    page = ann.get("/groups").text
    assert "say is-good done" in page
    hostile_input.check(page)
