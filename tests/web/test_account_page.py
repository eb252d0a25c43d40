"""What somebody changes of themselves."""

import pytest

from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import audit_rows
from tests.web.site import PASSWORD, sign_in, token

NEW = "another pass phrase"


@pytest.fixture
def ann(site):
    """Ann's browser."""
    site.user("ann", Role.VIEWER)
    browser = site.browser()
    sign_in(browser, "ann")
    return browser


def change(browser, password=PASSWORD, new=NEW, again=NEW):
    fields = {"token": token(browser), "password": password, "new": new, "again": again}
    return browser.post("/account/password", data=fields)


def trailed(site):
    with site.database.reading() as connection:
        return [(each.by, each.said) for each in audit_rows.read_history(connection) if "signed in" not in each.said]


def test_somebody_changes_their_password_and_is_signed_out_everywhere(site, ann):
    other = site.browser()
    sign_in(other, "ann")
    answer = change(ann)
    assert answer.headers["location"] == "/sign-in"
    assert [each.get("/groups").status_code for each in (ann, other)] == [303, 303]
    assert sign_in(ann, "ann").status_code == 403
    assert sign_in(ann, "ann", NEW).status_code == 303
    changed, refused = trailed(site)[-2:]
    assert changed == ("ann", "ann has another password")
    assert refused == ("not signed in", "wrong password for ann, at 127.0.0.1")


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        (
            {"password": "wrong"},
            403,
            "The current password is wrong. After 4 more wrong ones this name waits a minute.",
        ),
        ({"again": "not the same"}, 400, "The two new passwords differ"),
        ({"new": "short", "again": "short"}, 400, "12 to 1,000 characters"),
    ],
)
def test_a_password_that_cannot_be_changed_stays_and_nobody_is_signed_out(site, ann, given, status, said):
    answer = change(ann, **given)
    assert answer.status_code == status
    assert said in answer.text
    assert ann.get("/groups").status_code == 200
    assert sign_in(site.browser(), "ann").status_code == 303
    assert not {PASSWORD, NEW, "not the same"} & set(answer.text.split('"'))


def test_who_has_found_an_open_browser_guesses_the_password_no_faster_there(site, ann):
    assert [change(ann, password="wrong").status_code for _ in range(6)] == [403] * 5 + [429]
    assert change(ann).status_code == 429


def test_a_session_in_other_hands_is_ended_by_signing_out_everywhere(site, ann):
    stolen = site.browser()
    stolen.cookies.update(ann.cookies)
    assert stolen.get("/groups").status_code == 200
    ann.post("/account/sign-out", data={"token": token(ann)})
    assert [each.get("/groups").status_code for each in (ann, stolen)] == [303, 303]
    assert trailed(site)[-1] == ("ann", "ann signed out everywhere")


def test_who_came_by_the_link_or_a_proxy_has_no_password_to_change(site):
    browser = site.browser()
    browser.post(f"/sign-in/{site.console.sessions.new_link()}")
    assert "You signed in by the one-time link" in browser.get("/account").text
    assert change(browser).status_code == 400


@pytest.mark.parametrize(("cookie", "theme"), [("dark", ' data-theme="dark"'), ('"><script>', ""), ("", "")])
def test_a_page_comes_in_the_theme_of_its_cookie_and_in_no_other(ann, cookie, theme):
    ann.cookies.set("theme", cookie)
    assert f'<html lang="en" data-zone="UTC" data-zone-name="UTC"{theme}>' in ann.get("/groups").text
