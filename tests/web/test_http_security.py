"""By which names the console answers, which forms it takes, and where it goes on to."""

import pytest
from starlette.datastructures import Headers

from bridge.console.auth.http_security import (
    choose_redirect_path,
    find_form_fault,
    is_known_host,
    is_without_tls,
)

NAMES = ("console.example.com",)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8093", "LOCALHOST", "127.0.0.1:8093", "[::1]:8093", "10.1.2.3"),
        *("console.example.com", "Console.Example.com:443", "console.example.com."),
    ],
)
def test_it_answers_to_this_machine_to_addresses_and_to_its_own_names(host):
    assert is_known_host(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8093", "console.example.com.evil.example"),
        *("", ":8093", "evil.example:80@localhost", "[::1", "localhost@evil.example", "sub.console.example.com"),
    ],
)
def test_it_answers_to_no_other_name(host):
    assert not is_known_host(host, NAMES)


def test_a_site_that_makes_its_name_lead_here_is_answered_nothing(site):
    browser = site.browser("http://evil.example")
    answer = browser.get("/sign-in")
    assert answer.status_code == 421
    assert [browser.post("/sign-in").status_code, browser.get("/static/x/console.css").status_code] == [421, 421]
    assert "DEADLETTERS_CONSOLE_HOSTS" in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_probe_may_call_it_by_any_name(site):
    assert site.browser("http://console-1.pods.example").get("/healthz").text == "ok\n"


def test_a_name_that_is_set_is_answered(new_site):
    site = new_site(DEADLETTERS_CONSOLE_HOSTS="console.example.com, other.example.com")
    assert site.browser("https://other.example.com").get("/sign-in").status_code == 200


def test_the_name_by_which_messages_link_to_it_is_its_own(new_site):
    site = new_site(
        DEADLETTERS_CONSOLE_URL="https://Console.example.com:8443/desk", DEADLETTERS_CONSOLE_HOSTS="b.example"
    )
    for name in ("console.example.com", "b.example"):
        assert site.browser(f"https://{name}").get("/sign-in").status_code == 200, name
    assert site.browser("https://example.com").get("/sign-in").status_code == 421


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"sec-fetch-site": "same-origin", "origin": "https://localhost:8093"},
        {"sec-fetch-site": "none"},
        {"origin": "http://localhost:8093"},
        {"origin": "https://console.example.com"},
    ],
)
def test_a_form_of_this_site_is_taken(sent):
    assert find_form_fault(Headers({"host": "localhost:8093", **sent}), NAMES) == ""


@pytest.mark.parametrize(
    "sent",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "https://localhost:8093"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost"},
        {"sec-fetch-site": "same-origin", "origin": "https://console.example.com.evil.example"},
    ],
)
def test_a_form_of_another_site_is_not(sent):
    assert find_form_fault(Headers({"host": "localhost:8093", **sent}), NAMES) != ""


@pytest.mark.parametrize(
    ("origin", "host", "plain"),
    [
        ("http://console.example.com", "console.example.com", True),
        ("http://10.1.2.3:8093", "10.1.2.3:8093", True),
        ("https://console.example.com", "console.example.com", False),
        ("http://localhost:8093", "localhost:8093", False),
        ("http://[::1]:8093", "[::1]:8093", False),
    ],
)
def test_a_browser_that_would_keep_no_session_is_known(origin, host, plain):
    assert is_without_tls(Headers({"origin": origin, "host": host})) is plain


@pytest.mark.parametrize("then", ["/", "/letters/48112", "/letters?status=open&key=4711", "/find?q=%2F%2Fevil"])
def test_signing_in_goes_on_to_a_path_of_this_site(then):
    assert choose_redirect_path(then) == then


@pytest.mark.parametrize(
    "then",
    [
        *("", "letters", "https://evil.example", "//evil.example", "///evil.example", "/\\evil.example"),
        *("\\\\evil.example", "/\t/evil.example", "/\n/evil.example", " //evil.example", "javascript:alert(1)"),
        *("/a\r\nset-cookie: x=y", "/sign-in?then=/", "/sign-out", "/\u2044evil.example", "/" + "a" * 5_000),
    ],
)
def test_it_goes_nowhere_else(then):
    assert choose_redirect_path(then) == "/"
