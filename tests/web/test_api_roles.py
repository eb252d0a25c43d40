"""Every operation of the API is refused without a token of its role. A new one must enter this table."""

import re
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from bridge.console.api import api_endpoint
from bridge.console.api.api_endpoint import OPERATIONS
from bridge.console.api.api_operation import Download
from bridge.console.api.schemas.common_schema import NoParameters
from bridge.deadletters.accounts.user_account import Role

ROLES = {
    "GET /letters": Role.VIEWER,
    "GET /letters/count": Role.VIEWER,
    "GET /letters/export": Role.VIEWER,
    "POST /letters/check": Role.OPERATOR,
    "GET /letters/{id:int}": Role.VIEWER,
    "GET /letters/{id:int}/value": Role.VIEWER,
    "GET /letters/{id:int}/elsewhere": Role.VIEWER,
    "POST /letters/{id:int}/check": Role.OPERATOR,
    "POST /letters/{id:int}/edit": Role.OPERATOR,
    "POST /letters/{id:int}/notes": Role.OPERATOR,
    "POST /letters/{id:int}/reopen": Role.OPERATOR,
    "POST /letters/{id:int}/resolve": Role.OPERATOR,
    "GET /groups": Role.VIEWER,
    "GET /groups/{id:int}": Role.VIEWER,
    "POST /groups/{id:int}/fixed": Role.OPERATOR,
    "POST /groups/{id:int}/not-fixed": Role.OPERATOR,
    "POST /groups/{id:int}/notes": Role.OPERATOR,
    "GET /plans": Role.VIEWER,
    "POST /plans": Role.OPERATOR,
    "POST /plans/patch": Role.OPERATOR,
    "POST /plans/copy": Role.OPERATOR,
    "POST /plans/redrive": Role.OPERATOR,
    "GET /plans/{id:int}/differences": Role.VIEWER,
    "GET /plans/{id:int}": Role.VIEWER,
    "GET /plans/{id:int}/outcomes": Role.VIEWER,
    "POST /plans/{id:int}/apply": Role.OPERATOR,
    "POST /plans/{id:int}/stop": Role.OPERATOR,
    "GET /status": Role.VIEWER,
    "GET /stats": Role.VIEWER,
    "GET /find": Role.VIEWER,
    "GET /audit": Role.VIEWER,
    "POST /audit/{topic}": Role.VIEWER,
    "GET /trail": Role.VIEWER,
    "GET /trail/export": Role.VIEWER,
    "GET /halts": Role.VIEWER,
    "GET /topics/{topic}/records/{partition:int}/{offset:int}": Role.VIEWER,
    "POST /topics/{topic}/halt": Role.OPERATOR,
    "POST /topics/{topic}/resume": Role.OPERATOR,
    "GET /policies": Role.VIEWER,
    "GET /policies/{name}": Role.VIEWER,
    "POST /policies/{name}": Role.OPERATOR,
    "POST /policies/{name}/simulate": Role.OPERATOR,
}
#: What acts, and so wants an idempotency key.
ACTS = {
    *(
        "editLetter",
        "noteOnLetter",
        "reopenLetter",
        "resolveLetter",
        "markFixed",
        "unmarkFixed",
        "noteOnGroup",
        "makePlan",
        "applyPlan",
        "stopPlan",
    ),
    *("haltTopic", "resumeTopic", "changePolicy", "planPatch", "planCopy", "planRedrive"),
}


@pytest.fixture
def guarded(new_site, monkeypatch):
    """A console whose API says only that somebody was let in: what it answers is no matter here."""
    open_ = [
        each._replace(answer=lambda asked: Download(b"let in", "answer.bin"), query=NoParameters, takes=None, act=None)
        for each in OPERATIONS
    ]
    monkeypatch.setattr(api_endpoint, "OPERATIONS", open_)
    return new_site()


def ask(site, address, secret=None, **headers):
    method, path = address.split(" ")
    filled = re.sub(r"{[^}]+}", "1", path)
    said = {"authorization": f"Bearer {secret}"} if secret else {}
    client = TestClient(site.app, base_url="https://localhost", raise_server_exceptions=False)
    return client.request(method, f"/api/v1{filled}", headers=said | headers)


def secret_of(site, role):
    return site.console.desk.tokens.make(f"{role} {uuid4().hex[:6]}", role, "the test")[1]


def test_the_table_has_every_operation_with_its_role():
    assert {f"{each.method} {each.path}": each.role for each in OPERATIONS} == ROLES


def test_what_acts_wants_a_key_and_an_operator():
    assert {each.name for each in OPERATIONS if each.act} == ACTS
    assert {each.role for each in OPERATIONS if each.act} == {Role.OPERATOR}


def test_without_a_token_with_a_session_or_with_a_lower_role_it_is_refused(guarded):
    browser = guarded.signed_in(Role.ADMIN)
    secrets = {role: secret_of(guarded, role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)}
    for address, role in ROLES.items():
        assert ask(guarded, address).status_code == 401, address
        method, path = address.split(" ")
        assert browser.request(method, "/api/v1" + re.sub(r"{[^}]+}", "1", path)).status_code == 401, address
        for lower in (each for each in secrets if each < role):
            refused = ask(guarded, address, secrets[lower])
            assert refused.status_code == 403, address
            assert f"This needs the role {role}; " in refused.json()["detail"], address


def test_a_token_that_nobody_made_is_refused(guarded):
    assert ask(guarded, "GET /letters", "bdl_" + "x" * 43).status_code == 401


def test_the_role_that_is_needed_is_enough(guarded):
    secrets = {role: secret_of(guarded, role) for role in set(ROLES.values())}
    for address, role in ROLES.items():
        assert ask(guarded, address, secrets[role]).text == "let in", address


def test_whom_a_proxy_names_is_let_in_by_a_token_alone(new_site):
    said = {"DEADLETTERS_TRUSTED_PROXY": "127.0.0.1", "DEADLETTERS_PROXY_USER_HEADER": "X-User"}
    site = new_site(**said, DEADLETTERS_PROXY_ROLE="admin")
    client = TestClient(site.app, base_url="https://localhost", client=("127.0.0.1", 1))
    assert client.get("/api/v1/letters", headers={"x-user": "ann"}).status_code == 401
