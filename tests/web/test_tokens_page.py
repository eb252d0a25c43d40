"""Tokens on their page: an admin makes one, which is shown once, sees when each was used, and revokes it."""

import re

import pytest
from starlette.testclient import TestClient

from bridge.deadletters.accounts.user_account import Role
from tests.web.site import token


@pytest.fixture
def admin(site):
    """A browser of an admin."""
    return site.signed_in(Role.ADMIN)


def make(browser, name="deploy", role="operator", days="30"):
    form = {"token": token(browser, "/admin/tokens"), "name": name, "role": role, "days": days}
    return browser.post("/admin/tokens", data=form)


def test_a_token_is_shown_once_opens_the_api_and_is_revoked(site, admin):
    made = make(admin)
    # Also the button that copies it has it.
    (secret,) = set(re.findall(r"bdl_[\w-]{43}", made.text))
    assert made.headers["cache-control"] == "no-store"
    page = admin.get("/admin/tokens").text
    assert secret not in page
    assert "deploy" in page
    assert "never" in page
    program = TestClient(site.app, base_url="https://localhost", headers={"authorization": f"Bearer {secret}"})
    assert program.get("/api/v1/letters").status_code == 200
    assert "never" not in admin.get("/admin/tokens").text
    form = {"token": token(admin, "/admin/tokens")}
    for _ in range(2):
        assert admin.post("/admin/tokens/1/revoke", data=form).status_code == 303
    assert program.get("/api/v1/letters").status_code == 401
    trail = admin.get("/activity").text
    assert "deploy made, as operator" in trail
    assert "deploy revoked, was operator" in trail


def test_a_form_that_is_sent_again_makes_no_second_token(site, admin):
    make(admin)
    again = make(admin)
    assert again.status_code == 400
    assert "There is a token deploy already" in again.text
    assert len(site.console.desk.tokens.all()) == 1


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"role": "nobody"}, {"role": "root"}, {"days": "0"}, {"days": "x"}, {"days": "9" * 30}]
)
def test_what_is_no_token_is_refused_and_what_was_typed_is_still_there(site, admin, wrong):
    refused = make(admin, **{"name": "nightly", **wrong})
    assert refused.status_code == 400
    assert "nothing was made" in refused.text
    assert site.console.desk.tokens.all() == []
    assert wrong.get("name") == "" or 'value="nightly"' in refused.text


def test_a_hostile_name_is_shown_harmless(admin):
    assert "<script>x" not in make(admin, name="<script>x</script>").text


def test_a_token_is_made_for_some_topics(site, admin):
    form = {"token": token(admin, "/admin/tokens"), "name": "deploy", "role": "viewer", "days": "30"}
    assert admin.post("/admin/tokens", data={**form, "topics": " , "}).status_code == 400
    admin.post("/admin/tokens", data={**form, "topics": "payments.*", "consumer_groups": "eu"})
    (made,) = site.console.desk.tokens.all()
    assert str(made.scope) == "topics payments.*; consumer groups eu"
    assert "topics payments.*; consumer groups eu" in admin.get("/admin/tokens").text
