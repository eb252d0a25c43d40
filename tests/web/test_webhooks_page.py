"""Webhooks, as an admin sets them up in a browser."""

import re

from bridge.deadletters.accounts.user_account import Role
from tests.web.site import token

SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")
PAGE = "/admin/webhooks"


def form(browser, **fields):
    given = {"name": "ops", "format": "standard", "address": "https://93.184.216.34/T0/s3cret", "of-halt": "1"}
    return browser.post(PAGE, data={"token": token(browser, PAGE), **given, **fields})


def act(browser, what, **fields):
    return browser.post(f"{PAGE}/ops/{what}", data={"token": token(browser, PAGE), **fields})


def test_an_admin_adds_one_and_sees_its_secret_once_and_its_address_never(any_site):
    admin = any_site.signed_in(Role.ADMIN)
    answer = form(admin)
    assert answer.status_code == 200
    secret = SECRET.findall(answer.text)[0]
    again = admin.get(PAGE).text
    assert "1 webhook</h1>" in again
    assert "https://93.184.216.34/…" in again
    assert secret not in again
    assert "s3cret" not in answer.text + again
    (made,) = any_site.console.desk.webhooks.list_webhooks()
    assert (made.about, made.by) == (("halt",), "admin-in-person")
    assert "ops added: https://93.184.216.34, as standard, of halt" in admin.get("/activity?did=webhooks").text


def test_what_cannot_be_is_refused_with_why_and_what_was_typed(site):
    admin = site.signed_in(Role.ADMIN)
    answer = form(admin, address="https://10.0.0.1/s3cret", name='"><script>')
    assert answer.status_code == 400
    assert "letters a to z" in answer.text
    assert "<script>alert" not in answer.text
    assert '"><script>' not in answer.text
    answer = form(admin, address="https://10.0.0.1/s3cret")
    assert "is not public" in answer.text
    assert 'value="ops"' in answer.text
    assert "s3cret" not in answer.text
    assert "Select at least one" in form(admin, **{"of-halt": ""}).text
    assert "Unknown format" in form(admin, format="teams").text
    assert site.console.desk.webhooks.list_webhooks() == []


def test_it_is_tried_switched_and_removed_by_name(site):
    admin = site.signed_in(Role.ADMIN)
    form(admin)
    assert act(admin, "test").headers["location"] == PAGE
    assert "A test of the webhook ops, by admin-in-person" in admin.get(PAGE).text
    assert act(admin, "off").status_code == 303
    page = admin.get(PAGE).text
    assert "by admin-in-person" in page
    assert "given up" in page
    assert "is off: switch it on first" in act(admin, "test").text
    assert act(admin, "on").status_code == 303
    refused = act(admin, "remove", typed="other")
    assert (refused.status_code, "type its name" in refused.text) == (400, True)
    assert act(admin, "remove", typed="ops").status_code == 303
    assert act(admin, "test").status_code == 409
    assert "No webhooks</h1>" in admin.get(PAGE).text
