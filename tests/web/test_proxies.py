"""A proxy that has signed somebody in: what it says is believed, and of nobody else."""

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from bridge.console.auth.authentication import authenticate
from bridge.console.auth.trusted_proxy import TrustedProxy
from bridge.deadletters.accounts.user_account import Role
from bridge.settings.setting_defaults import EnvironmentSettings

PROXY = "10.0.0.7"
HEADERS = {
    "DEADLETTERS_TRUSTED_PROXY": "10.0.0.7, 192.168.7.0/24, fd00::/64",
    "DEADLETTERS_PROXY_USER_HEADER": "X-Forwarded-User",
}
FOR_ALL = {**HEADERS, "DEADLETTERS_PROXY_ROLE": "viewer"}
EACH = {**HEADERS, "DEADLETTERS_PROXY_ROLE_HEADER": "X-Forwarded-Role"}
NAMED = {"X-Forwarded-User": "ann@example.com"}


def ask(site, sent_from, headers):
    return site.browser(sent_from=sent_from).get("/groups", headers=headers)


@pytest.mark.parametrize("sent_from", [PROXY, "192.168.7.200", "fd00::5", "::ffff:10.0.0.7"])
def test_whom_the_proxy_names_is_signed_in(new_site, sent_from):
    answer = ask(new_site(**FOR_ALL), sent_from, NAMED)
    assert answer.status_code == 200
    assert "ann@example.com" in answer.text
    assert "<dd>viewer</dd>" in answer.text


@pytest.mark.parametrize("sent_from", ["127.0.0.1", "10.0.0.8", "192.168.8.1", "::1", "fd00:1::5", "testclient"])
@pytest.mark.parametrize(
    "headers", [NAMED, {"X-Forwarded-Role": "admin"}, {**NAMED, "X-Forwarded-For": PROXY}, {"x-forwarded-user": ""}]
)
def test_a_forged_header_is_refused(new_site, sent_from, headers):
    answer = ask(new_site(**EACH), sent_from, headers)
    assert answer.status_code == 403
    assert "is believed of the proxy alone" in answer.text


def test_a_forged_header_is_refused_of_who_is_signed_in_too(new_site):
    site = new_site(**EACH)
    answer = site.signed_in(Role.VIEWER).get("/groups", headers={**NAMED, "X-Forwarded-Role": "admin"})
    assert answer.status_code == 403


def test_without_a_proxy_the_header_says_nothing(site):
    assert ask(site, PROXY, NAMED).headers["location"].startswith("/sign-in")


def test_whom_the_proxy_does_not_name_signs_in(new_site):
    site = new_site(**FOR_ALL)
    assert ask(site, PROXY, {}).headers["location"].startswith("/sign-in")
    assert ask(site, PROXY, {"X-Forwarded-User": " "}).headers["location"].startswith("/sign-in")
    assert "use its address" in site.browser().get("/sign-in").text


def test_what_a_browser_has_said_beside_the_proxy_is_refused(new_site):
    twice = [("x-forwarded-user", "admin@example.com"), ("x-forwarded-user", "ann@example.com")]
    answer = ask(new_site(**FOR_ALL), PROXY, twice)
    assert answer.status_code == 403
    assert "says twice" in answer.text


@pytest.mark.parametrize(
    ("word", "status"), [("operator", 200), ("admin", 200), ("root", 403), ("nobody", 403), ("", 403)]
)
def test_the_proxy_gives_the_role(new_site, word, status):
    answer = ask(new_site(**EACH), PROXY, {**NAMED, "X-Forwarded-Role": word})
    assert answer.status_code == status
    assert (f"<dd>{word}</dd>" if status == 200 else "must say viewer, operator or admin") in answer.text


def test_who_comes_by_the_proxy_has_nothing_here_to_sign_out_of(new_site):
    page = ask(new_site(**FOR_ALL), PROXY, NAMED).text
    assert "Sign out" not in page
    assert "Signed in by the proxy" in page


def test_who_comes_by_the_proxy_acts_with_a_token_of_their_own(new_site):
    site = new_site(**FOR_ALL)
    ann, bob = (site.browser(sent_from=PROXY) for _ in range(2))
    ann.headers["x-forwarded-user"], bob.headers["x-forwarded-user"] = "ann", "bob"
    mark = token_of(site, "ann")
    assert ann.post("/sign-out", data={"token": mark}).status_code == 303
    assert ann.post("/sign-out").status_code == 403
    assert bob.post("/sign-out", data={"token": mark}).status_code == 403


def token_of(site, name):
    scope = {"type": "http", "client": (PROXY, 1), "headers": [(b"x-forwarded-user", name.encode())]}
    return authenticate(site.console, Request(scope)).token


@pytest.mark.parametrize(
    ("peer", "forwarded", "sender"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        (PROXY, "198.51.100.1", "198.51.100.1"),
        (PROXY, "1.1.1.1, 198.51.100.1", "198.51.100.1"),
        (PROXY, "198.51.100.1, 192.168.7.3", "198.51.100.1"),
        (PROXY, None, PROXY),
        ("2001:db8:1:2:3::9", None, "2001:db8:1:2::/64"),
        ("", None, ""),
    ],
)
def test_wrong_passwords_are_counted_by_the_address_that_the_proxy_has_seen(peer, forwarded, sender):
    proxy = TrustedProxy.from_environment(EnvironmentSettings.model_validate(FOR_ALL))
    assert proxy.sender(peer, Headers({"x-forwarded-for": forwarded} if forwarded else {})) == sender


SCOPED = {**FOR_ALL, "DEADLETTERS_PROXY_TOPICS_HEADER": "X-Topics"}


def test_the_proxy_says_which_topics_somebody_sees(new_site):
    answer = ask(new_site(**SCOPED), PROXY, {**NAMED, "X-Topics": "payments.*, refunds"})
    assert answer.status_code == 200
    assert "topics payments.*, refunds" in answer.text


@pytest.mark.parametrize("said", [{}, {"X-Topics": ""}, {"X-Topics": " , "}, {"X-Topics": "x" * 300}])
def test_who_has_no_topics_by_the_proxy_sees_nothing(new_site, said):
    answer = ask(new_site(**SCOPED), PROXY, {**NAMED, **said})
    assert answer.status_code == 403
    assert "does not say what you see" in answer.text


def test_topics_that_a_browser_names_are_refused(new_site):
    site = new_site(**SCOPED)
    assert ask(site, "127.0.0.1", {"X-Topics": "*"}).status_code == 403
    twice = [*NAMED.items(), ("X-Topics", "payments"), ("X-Topics", "*")]
    assert ask(site, PROXY, twice).status_code == 403


def test_an_admin_of_the_proxy_manages_accounts_if_all_topics_are_named(new_site):
    said = {**SCOPED, "DEADLETTERS_PROXY_ROLE": "admin"}
    for topics, status in (("*", 200), ("payments.*", 403)):
        browser = new_site(**said).browser(sent_from=PROXY)
        assert browser.get("/admin/users", headers={**NAMED, "X-Topics": topics}).status_code == status
