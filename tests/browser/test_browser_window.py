"""What the browser's tests rest on: nothing that goes wrong in a page is unseen."""

import re

import pytest

from bridge.deadletters.accounts.user_account import Role
from tests.browser.window import Window, until
from tests.web.site import PASSWORD


@pytest.mark.parametrize(
    ("does", "seen"),
    [
        ("setTimeout(() => { throw new Error('by itself') })", "script: by itself"),
        ("console.error('said')", "error: said"),
        ("document.createElement('img').src = 'http://127.0.0.2:9/x'", "violates"),
        ("document.body.insertAdjacentHTML('beforeend', '<p onclick=\"x()\">')", "violates"),
        ("document.body.setAttribute('style', 'color: red')", "violates"),
        ("fetch('http://127.0.0.2:9/').catch(() => 0)", "violates"),
        ("window.open('http://127.0.0.2:9/')", "another host"),
        ("alert(1)", "dialog: 1"),
    ],
)
def test_what_goes_wrong_in_a_page_is_a_fault(window, does, seen):
    opened: Window = window()
    page = opened.page("/account")
    assert opened.faults == []
    opened.bears(".")
    page.evaluate(f"() => {{ {does} }}")
    until(page, lambda: any(re.search(seen, each) for each in opened.faults), what=seen)


def test_who_signs_in_by_name_and_password_is_where_they_were_going(night, night_console, opens):
    page = opens(night, night_console, None).page("/letters?status=open")
    assert "Sign in" in page.title()
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/letters?status=open")
    assert page.get_by_role("button", name="ann").is_visible()


def test_a_window_is_signed_in_as_its_role_says(window):
    page = window(Role.ADMIN).page("/admin/users")
    assert page.locator("#me dd").text_content() == "admin"
