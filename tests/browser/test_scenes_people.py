"""Who gets in at the console, and who is out at once: in real browsers, as people and thieves have them."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bridge.console.auth.browser_session import LOCAL_SESSION_COOKIE
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.browser import incident
from tests.browser.world import PEOPLE, World
from tests.processes import Served
from tests.web.site import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.window import Window

#: Processes start, passwords are tried.
pytestmark = pytest.mark.timeout(300)

NEW = "another pass phrase"


@pytest.fixture
def console(shop: World) -> Served:
    """Of a desk with one letter, and nothing else that runs."""
    shop.record([incident.died(shop, 1, 60_000)])
    return shop.console()


@pytest.fixture
def window(shop: World, console: Served, opens: Callable[..., "Window"]) -> Callable[..., "Window"]:
    """Opens a window on it."""
    return lambda role=Role.OPERATOR, **looks: opens(shop, console, role, **looks)


def sign_in(page: "Page", name: str, password: str = PASSWORD) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def stolen(window: Any, of: "Window") -> "Page":
    """A page of a thief who has copied the cookie of a window, and is in."""
    cookie = next(each for each in of.context.cookies() if each["name"] == LOCAL_SESSION_COOKIE)
    thief = window(None)
    thief.context.add_cookies([{"name": LOCAL_SESSION_COOKIE, "value": cookie["value"], "url": thief.address}])
    page: Page = thief.page("/groups")
    assert "/groups" in page.url
    return page


def is_out(page: "Page") -> bool:
    page.goto("/groups")
    return "/sign-in" in page.url


def test_who_guesses_a_password_waits_and_the_right_one_is_not_tried_meanwhile(window):
    thief = window(None)
    thief.bears("403|429")
    page = thief.page("/sign-in")
    for left in (4, 3, 2):
        sign_in(page, "ann", "guessed")
        page.get_by_text(f"After {left} more wrong ones this name waits a minute.").wait_for()
    for _ in range(2):
        with page.expect_navigation():
            sign_in(page, "ann", "guessed")
    sign_in(page, "ann")
    page.get_by_text("Too many failures: this name waits at this address until").wait_for()
    assert is_out(page)
    # Another name, from the same address, is not kept out by that.
    page.goto("/sign-in?then=/groups")
    sign_in(page, "vic")
    page.wait_for_url("**/groups")


def test_a_stolen_session_is_ended_by_signing_out_everywhere(window):
    ann = window()
    thief = stolen(window, ann)
    page = ann.page("/account")
    page.get_by_role("button", name="Sign out everywhere").click()
    page.wait_for_url("**/sign-in")
    assert is_out(thief)
    assert is_out(page)


def test_a_stolen_session_is_ended_by_another_password(window):
    ann = window()
    thief = stolen(window, ann)
    page = ann.page("/account")
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password, 12").fill(NEW)
    page.get_by_label("New password again").fill(NEW)
    page.get_by_role("button", name="Change the password").click()
    page.wait_for_url("**/sign-in")
    assert is_out(thief)
    page.goto("/sign-in?then=/groups")
    sign_in(page, "ann", NEW)
    page.wait_for_url("**/groups")


def test_a_role_that_is_lowered_meanwhile_counts_at_once_and_nothing_is_done(shop, window):
    ann, ada = window(), window(Role.ADMIN)
    ann.bears("403")
    hers = ann.page("/letters/1/edit")
    hers.get_by_label("Why, for the audit log").fill("its vendor knows")
    his = ada.page("/admin/users")
    his.get_by_role("link", name="ann").click()
    his.get_by_label("viewer").check()
    his.get_by_role("button", name="Change the role").click()
    his.get_by_role("heading", name="ann is viewer").wait_for()
    hers.get_by_role("button", name="Check it").click()
    hers.wait_for_url("**/sign-in?**")
    sign_in(hers, "ann")
    hers.get_by_text("This needs the role operator; ann has the role viewer.").wait_for()
    (letter,) = shop.desk.letters.page(LetterFilter(), 10).letters
    assert (letter.status, shop.desk.plans.latest()) == (LetterStatus.OPEN, [])
    assert "ann is viewer now, was operator" in [
        entry.said for entry in shop.desk.trail.page(EntryFilter(what=("user",))).entries
    ]


def test_what_was_typed_when_the_session_ended_is_there_after_signing_in_and_for_nobody_else(shop, window):
    opened = window()
    page = opened.page("/letters/1")
    page.get_by_label("Note").last.fill("the till in Malmö writes a comma")
    shop.desk.users.sign_out_everywhere("ann", "the test")
    page.get_by_role("button", name="Add the note").click()
    page.wait_for_url("**/sign-in?**")
    there = page.url
    shop.desk.users.give_role("vic", Role.OPERATOR, "the test")
    sign_in(page, "vic")
    page.wait_for_url("**/letters/1**")
    assert "Malmö" not in page.content()
    page.goto(there)
    sign_in(page, "ann")
    page.get_by_text("You have signed in again, and the form was not sent.").wait_for()
    assert page.get_by_label("Note").last.input_value() == "the till in Malmö writes a comma"
    assert shop.desk.letters.one(1).trail == ()
    page.get_by_role("button", name="Add the note").click()
    page.wait_for_url("**#notes")
    assert [act.said for act in shop.desk.letters.one(1).trail] == ["the till in Malmö writes a comma"]


def test_who_is_added_chooses_a_password_by_a_link_and_signs_in(shop, window):
    page = window(Role.ADMIN).page("/admin/users")
    page.get_by_label("Name, with which they sign in").fill("bob")
    page.get_by_label("Role").select_option("operator")
    page.get_by_role("button", name="Add, and make a link").dblclick()
    link = page.locator("main a[href*='/welcome/']").get_attribute("href")
    assert link is not None
    bobs = window(None).page(link)
    bobs.get_by_label(re.compile("^Password, 12")).fill(NEW)
    bobs.get_by_label("Password again").fill(NEW)
    bobs.get_by_role("button", name="Set this password").click()
    bobs.wait_for_url("**/sign-in")
    sign_in(bobs, "bob", NEW)
    bobs.get_by_role("button", name="bob").wait_for()
    assert [each.name for each in shop.desk.users.all()] == sorted([*PEOPLE.values(), "bob"])


@pytest.mark.parametrize("trusted", ["10.0.0.7", "127.0.0.1"])
def test_a_header_that_only_the_proxy_may_send_is_refused_from_anybody_else(shop, opens, trusted):
    console = shop.console(
        DEADLETTERS_TRUSTED_PROXY=trusted, DEADLETTERS_PROXY_USER_HEADER="X-User", DEADLETTERS_PROXY_ROLE="admin"
    )
    forger = opens(shop, console, None, extra_http_headers={"X-User": "root"})
    forger.bears("403")
    page = forger.page("/admin/users")
    if trusted == "127.0.0.1":
        page.get_by_role("heading", name="3 users may sign in by name").wait_for()
    else:
        page.get_by_text("is believed of the proxy alone").wait_for()
        assert page.get_by_role("link", name="ada").count() == 0
