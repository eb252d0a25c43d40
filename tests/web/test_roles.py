"""Every address of the console is refused without its role. A new one must enter this table."""

import re

import pytest
from starlette.responses import PlainTextResponse

from bridge.console import asgi_app
from bridge.console.api.api_endpoint import OPERATIONS
from bridge.console.auth import browser_session
from bridge.console.pages.page_routes import PAGE_ROUTES
from bridge.deadletters.accounts.user_account import Role

ROLES = {
    "GET /": Role.VIEWER,
    "GET /topics/{topic}": Role.VIEWER,
    "GET /topics/{topic}/decisions": Role.VIEWER,
    "GET /topics/{topic}/halt": Role.OPERATOR,
    "POST /topics/{topic}/halt": Role.OPERATOR,
    "GET /topics/{topic}/resume": Role.OPERATOR,
    "POST /topics/{topic}/resume": Role.OPERATOR,
    "GET /handlers/{name}": Role.VIEWER,
    "GET /handlers/{name}/policy": Role.VIEWER,
    "POST /handlers/{name}/policy": Role.OPERATOR,
    "GET /find": Role.VIEWER,
    "GET /activity": Role.VIEWER,
    "POST /activity/export": Role.VIEWER,
    "GET /audit": Role.VIEWER,
    "POST /audit": Role.VIEWER,
    "POST /audit/{topic}": Role.VIEWER,
    "GET /groups": Role.VIEWER,
    "GET /groups/{id:int}": Role.VIEWER,
    "GET /groups/{id:int}/common": Role.VIEWER,
    "GET /groups/fixed": Role.OPERATOR,
    "POST /groups/fixed": Role.OPERATOR,
    "GET /groups/{id:int}/fixed": Role.OPERATOR,
    "POST /groups/{id:int}/fixed": Role.OPERATOR,
    "POST /groups/{id:int}/not-fixed": Role.OPERATOR,
    "POST /groups/{id:int}/note": Role.OPERATOR,
    "GET /letters": Role.VIEWER,
    "POST /letters/export": Role.VIEWER,
    "GET /letters/{id:int}": Role.VIEWER,
    "GET /letters/{id:int}/value": Role.VIEWER,
    "GET /letters/{id:int}/elsewhere": Role.VIEWER,
    "POST /letters/{id:int}/notes": Role.OPERATOR,
    "POST /views": Role.VIEWER,
    "POST /views/{id:int}/remove": Role.VIEWER,
    "POST /letters/{id:int}/reopen": Role.OPERATOR,
    "POST /letters/{id:int}/resolve": Role.OPERATOR,
    "GET /letters/{id:int}/edit": Role.OPERATOR,
    "POST /letters/{id:int}/edit": Role.OPERATOR,
    "POST /letters/{id:int}/check": Role.OPERATOR,
    "GET /plans": Role.VIEWER,
    "POST /plans/new": Role.OPERATOR,
    "GET /plans/patch": Role.OPERATOR,
    "POST /plans/patch": Role.OPERATOR,
    "POST /plans/patch/check": Role.OPERATOR,
    "GET /plans/{id:int}/differences": Role.VIEWER,
    "GET /plans/{id:int}": Role.VIEWER,
    "POST /plans/{id:int}/apply": Role.OPERATOR,
    "POST /plans/{id:int}/stop": Role.OPERATOR,
    "GET /events": Role.VIEWER,
    "GET /sign-in": Role.NOBODY,
    "POST /sign-in": Role.NOBODY,
    "GET /sign-in/oidc": Role.NOBODY,
    "GET /sign-in/oidc/back": Role.NOBODY,
    "GET /sign-in/{token}": Role.NOBODY,
    "POST /sign-in/{token}": Role.NOBODY,
    "GET /topics/{topic}/blocking": Role.VIEWER,
    "GET /topics/{topic}/records/{partition:int}/{offset:int}": Role.VIEWER,
    "GET /topics/{topic}/records/{partition:int}/{offset:int}/content": Role.VIEWER,
    "GET /topics/{topic}/records/{partition:int}/{offset:int}/good": Role.VIEWER,
    "GET /letters/{id:int}/good": Role.VIEWER,
    "GET /account": Role.VIEWER,
    "POST /account/password": Role.VIEWER,
    "POST /account/sign-out": Role.VIEWER,
    "GET /admin/users": Role.ADMIN,
    "POST /admin/users": Role.ADMIN,
    "GET /admin/users/{id:int}": Role.ADMIN,
    "POST /admin/users/{id:int}/role": Role.ADMIN,
    "POST /admin/users/{id:int}/scope": Role.ADMIN,
    "POST /admin/users/{id:int}/link": Role.ADMIN,
    "POST /admin/users/{id:int}/sign-out": Role.ADMIN,
    "POST /admin/users/{id:int}/remove": Role.ADMIN,
    "POST /admin/issued/sign-out": Role.ADMIN,
    "GET /welcome/{id:int}/{token}": Role.NOBODY,
    "POST /welcome/{id:int}/{token}": Role.NOBODY,
    "GET /admin/unmask": Role.ADMIN,
    "POST /admin/unmask": Role.ADMIN,
    "POST /admin/mask": Role.ADMIN,
    "GET /admin/webhooks": Role.ADMIN,
    "POST /admin/webhooks": Role.ADMIN,
    "POST /admin/webhooks/{name}/test": Role.ADMIN,
    "POST /admin/webhooks/{name}/off": Role.ADMIN,
    "POST /admin/webhooks/{name}/on": Role.ADMIN,
    "POST /admin/webhooks/{name}/remove": Role.ADMIN,
    "GET /admin/tokens": Role.ADMIN,
    "POST /admin/tokens": Role.ADMIN,
    "POST /admin/tokens/{id:int}/revoke": Role.ADMIN,
    "POST /sign-out": Role.VIEWER,
    "GET /healthz": Role.NOBODY,
}
#: What is answered without being in the table of addresses: files of the console itself, and the API's words on itself,
#: which show nothing.
OPEN = {"/static/{digest}/{name}", "/api/v1/openapi.json", "/api/v1/problems/{name}"}
GUARDED = [(address, role) for address, role in ROLES.items() if role > Role.NOBODY]
POSTS = [address for address, _ in GUARDED if address.startswith("POST")]


@pytest.fixture
def guarded(new_site, monkeypatch):
    """A console whose pages say only that somebody was let in: what they show is no matter here."""
    pages = [page._replace(answer=lambda request: PlainTextResponse("let in")) for page in PAGE_ROUTES]
    monkeypatch.setattr(asgi_app, "PAGE_ROUTES", pages)
    return new_site()


def token(browser):
    """What the forms of a browser's session bring along."""
    return browser_session.derive_form_token(browser.cookies[browser_session.SESSION_COOKIE])


def ask(browser, address, **form):
    method, path = address.split(" ")
    filled = re.sub(r"{[^}]+}", "1", path)
    return browser.request(method, filled, data=form if method == "POST" else None)


def test_the_table_has_every_address_with_its_role():
    assert {f"{page.method} {page.path}": page.role for page in PAGE_ROUTES} == ROLES


def test_the_console_answers_at_no_other_address(site):
    for_programs = {f"/api/v1{operation.path}" for operation in OPERATIONS}
    assert {route.path for route in site.app.routes} == {page.path for page in PAGE_ROUTES} | OPEN | for_programs


def test_who_is_not_signed_in_is_sent_to_sign_in_and_sees_nothing(guarded):
    for address, _ in GUARDED:
        answer = ask(guarded.browser(), address)
        assert answer.status_code == 303, address
        assert answer.headers["location"].startswith("/sign-in?then=%2F"), address
        assert answer.text == "", address


@pytest.mark.parametrize("lower", [Role.VIEWER, Role.OPERATOR])
def test_a_lower_role_is_refused_with_the_one_that_is_needed(guarded, lower):
    browser = guarded.signed_in(lower)
    for address, role in GUARDED:
        if role > lower:
            answer = ask(browser, address, token=token(browser))
            assert answer.status_code == 403, address
            assert f"This needs the role {role}; {lower}-in-person has the role {lower}." in answer.text, address


@pytest.mark.parametrize("enough", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_the_role_that_is_needed_is_enough(guarded, enough):
    browser = guarded.signed_in(enough)
    for address, role in GUARDED:
        if role == enough:
            assert ask(browser, address, token=token(browser)).text == "let in", address


@pytest.mark.parametrize("form", [{}, {"token": ""}, {"token": "0" * 64}])
def test_what_acts_is_refused_without_the_token_of_the_session(guarded, form):
    browser = guarded.signed_in(Role.ADMIN)
    for address in POSTS:
        answer = ask(browser, address, **form)
        assert answer.status_code == 403, address
        assert "Nothing was changed" in answer.text, address


def test_the_token_of_another_session_is_none(guarded):
    other = token(guarded.signed_in(Role.ADMIN))
    browser = guarded.signed_in(Role.ADMIN)
    for address in POSTS:
        assert ask(browser, address, token=other).status_code == 403, address


def test_no_address_answers_to_another_method(guarded):
    browser = guarded.signed_in(Role.ADMIN)
    for path in {address.split(" ")[1] for address, _ in GUARDED}:
        known = {each.split(" ")[0] for each in ROLES if each.split(" ")[1] == path} | {"HEAD"}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - known:
            answer = ask(browser, f"{method} {path}", token=token(browser))
            assert answer.status_code in (404, 405), f"{method} {path}"
