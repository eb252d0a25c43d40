"""Signing in: by name and password, by the one-time link of a console without users; and out."""

import logging

import pytest

from bridge.console.auth import browser_session, passwords, sign_in_audit
from bridge.console.auth.browser_session import LOCAL_SESSION_COOKIE, SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.account_session import SESSION_LASTS, UserSessions
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import account_rows
from bridge.deadletters.db.audit_rows import ALL_ENTRIES
from bridge.errors import DeskUnavailable
from tests.web.site import PASSWORD, sign_in, token

WRONG = "Name or password is wrong. After 4 more wrong ones this name waits a minute."


def cookie_of(answer):
    return answer.headers.get_list("set-cookie")[0]


def is_signed_in(browser):
    return browser.get("/groups").status_code == 200


def test_somebody_signs_in_and_goes_on_to_where_they_were_going(any_site):
    any_site.user("m.ito", Role.OPERATOR)
    browser = any_site.browser()
    sent = browser.get("/letters?status=any&key=4711").headers["location"]
    page = browser.get(sent).text
    assert "Then on to <bdi>/letters</bdi>." in page
    assert 'name="then" value="/letters?status=any&amp;key=4711"' in page
    answer = sign_in(browser, " M.Ito ", then="/letters?status=any&key=4711")
    assert (answer.status_code, answer.headers["location"]) == (303, "/letters?status=any&key=4711")
    page = browser.get("/groups").text
    assert "m.ito" in page
    assert "<dd>operator</dd>" in page


def test_the_cookie_is_of_this_host_alone_over_https_and_no_script_reads_it(site):
    site.user("ann", Role.VIEWER)
    said = cookie_of(sign_in(site.browser(), "ann"))
    name, *rest = said.split("; ")
    assert name.startswith(f"{SESSION_COOKIE}=")
    assert {each.lower() for each in rest} == {"httponly", "max-age=43200", "path=/", "samesite=lax", "secure"}


def test_on_this_machine_without_tls_the_cookie_is_one_that_browsers_keep(site):
    site.user("ann", Role.VIEWER)
    browser = site.browser("http://localhost:8093")
    said = cookie_of(sign_in(browser, "ann"))
    assert said.startswith(f"{LOCAL_SESSION_COOKIE}=")
    assert "secure" not in said.lower()
    assert is_signed_in(browser)


def test_over_https_a_cookie_without_the_prefix_is_none(site):
    site.user("ann", Role.VIEWER)
    browser = site.browser("http://localhost:8093")
    cookie = sign_in(browser, "ann").cookies[LOCAL_SESSION_COOKIE]
    other = site.browser()
    other.cookies.set(LOCAL_SESSION_COOKIE, cookie)
    assert not is_signed_in(other)


def test_behind_a_proxy_with_tls_the_cookie_is_that_of_https(new_site):
    site = new_site(DEADLETTERS_CONSOLE_HOSTS="console.example.com")
    site.user("ann", Role.VIEWER)
    assert cookie_of(sign_in(site.browser("http://console.example.com"), "ann")).startswith(f"{SESSION_COOKIE}=")


def test_a_password_is_not_taken_without_tls(new_site):
    site = new_site(DEADLETTERS_CONSOLE_HOSTS="console.example.com")
    site.user("ann", Role.VIEWER)
    browser = site.browser("http://console.example.com")
    browser.headers["origin"] = "http://console.example.com"
    answer = sign_in(browser, "ann")
    assert "set-cookie" not in answer.headers
    assert "Passwords need HTTPS" in answer.text


@pytest.mark.parametrize(
    ("name", "password"), [("ann", "wrong"), ("bob", PASSWORD), ("ann", ""), ("", ""), ("ann\0", "x")]
)
def test_a_wrong_name_and_a_wrong_password_are_answered_alike(any_site, name, password):
    any_site.user("ann", Role.VIEWER)
    answer = sign_in(any_site.browser(), name, password)
    assert answer.status_code == 403
    assert WRONG in answer.text
    assert "set-cookie" not in answer.headers


def test_a_name_that_there_is_not_takes_as_long_as_a_wrong_password(site, monkeypatch):
    site.user("ann", Role.VIEWER)
    tried = []

    class Counting:
        def verify(self, kept, password):
            tried.append(kept)
            return real.verify(kept, password)

    real = passwords._HASHER
    passwords.verify_password(None, "x")
    monkeypatch.setattr(passwords, "_HASHER", Counting())
    for name in ("ann", "bob"):
        sign_in(site.browser(), name, "wrong")
    # One hash each, by the same parameters.
    assert [each.split("$")[1:4] for each in tried] == [tried[0].split("$")[1:4]] * 2


def test_after_five_wrong_ones_not_even_the_right_one_is_tried(site):
    site.user("ann", Role.VIEWER)
    browser = site.browser()
    for _ in range(5):
        assert sign_in(browser, "ann", "wrong").status_code == 403
    answer = sign_in(browser, "ann")
    assert answer.status_code == 429
    assert "this name waits at this address until" in answer.text
    begun = site.console.login_throttle.clock()
    site.console.login_throttle.clock = lambda: begun + 60_000
    assert sign_in(browser, "ann").status_code == 303


def test_who_signs_in_stands_in_the_audit_log(site):
    site.user("ann", Role.VIEWER)
    sign_in(site.browser(), "ann", "wrong")
    assert sign_in(site.browser(), "ann").status_code == 303
    assert sign_in(site.browser(), "a password in the wrong field", "wrong").status_code == 403
    said = [(each.by, each.what, each.said) for each in site.console.desk.trail.page(limit=3).entries]
    assert said == [
        ("not signed in", "failed sign-in", "a name that no user has, at 127.0.0.1"),
        ("ann", "sign-in", "ann signed in at 127.0.0.1"),
        ("not signed in", "failed sign-in", "wrong password for ann, at 127.0.0.1"),
    ]


def test_whoever_guesses_for_an_hour_does_not_fill_the_audit_log(site):
    audit, now = site.console.sign_in_audit, [0]
    audit.clock = lambda: now[0]
    for _ in range(sign_in_audit.MAX_FAILED + 50):
        audit.failed("a name that no user has, at 10.0.0.7")
    trail = site.console.desk.trail
    assert trail.count(ALL_ENTRIES) == sign_in_audit.MAX_FAILED
    assert "more of this hour are in the log" in trail.page(limit=1).entries[0].said
    now[0] += 3_600_000
    audit.failed("a name that no user has, at 10.0.0.8")
    assert trail.count(ALL_ENTRIES) == sign_in_audit.MAX_FAILED + 1


def test_a_browser_that_a_user_has_signed_in_with_lets_them_in_however_others_guess_from_its_address(site):
    site.user("ann", Role.VIEWER)
    site.user("bob", Role.VIEWER)
    known, stranger = site.browser(), site.browser()
    assert sign_in(known, "ann").status_code == 303
    for number in range(20):
        site.console.login_throttle.guess(f"user{number}", "127.0.0.1")
    assert sign_in(stranger, "ann").status_code == 429
    # It is known for the user who has signed in with it, and not for another one.
    assert sign_in(known, "bob").status_code == 429
    assert sign_in(known, "ann", "wrong").status_code == 403
    assert sign_in(known, "ann").status_code == 303


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_jumps_neither_shortens_nor_lengthens_what_a_wrong_one_costs(site, hours):
    site.user("ann", Role.VIEWER)
    browser = site.browser()
    for _ in range(5):
        sign_in(browser, "ann", "wrong")
    jumped = site.console.clock() + hours * 3_600_000
    site.console.clock = lambda: jumped
    assert sign_in(browser, "ann").status_code == 429
    begun = site.console.login_throttle.clock()
    site.console.login_throttle.clock = lambda: begun + 60_000
    assert sign_in(browser, "ann").status_code == 303


@pytest.mark.parametrize("then", ["https://evil.example/", "//evil.example", "/\\evil.example"])
def test_signing_in_leads_to_no_other_site(site, then):
    site.user("ann", Role.VIEWER)
    assert sign_in(site.browser(), "ann", then=then).headers["location"] == "/"
    assert "evil" not in site.browser().get("/sign-in", params={"then": then}).text


def test_each_signing_in_has_a_new_cookie_and_the_one_before_is_worth_nothing(site):
    site.user("ann", Role.VIEWER)
    browser = site.browser()
    browser.cookies.set(SESSION_COOKIE, "planted")
    first = sign_in(browser, "ann").cookies[SESSION_COOKIE]
    assert first != "planted"
    second = sign_in(browser, "ann").cookies[SESSION_COOKIE]
    stale = site.browser()
    stale.cookies.set(SESSION_COOKIE, first)
    assert second != first
    assert not is_signed_in(stale)


def test_a_session_outlives_a_restart_of_the_console(any_site):
    browser = any_site.signed_in(Role.VIEWER)
    console = Console(any_site.console.desk, "another process")
    found = console.sessions.who(browser.cookies[SESSION_COOKIE])
    assert found is not None
    assert found.role is Role.VIEWER


def test_a_session_ends_after_twelve_hours_however_busy_it_was(any_site):
    browser = any_site.signed_in(Role.VIEWER)
    begun = any_site.console.clock()
    for now in range(begun, begun + SESSION_LASTS - 60_000, 3_600_000):
        any_site.console.clock = lambda now=now: now
        assert is_signed_in(browser)
    any_site.console.clock = lambda: begun + SESSION_LASTS + 60_000
    assert not is_signed_in(browser)


def end_by_signing_out(site, browser):
    assert browser.post("/sign-out", data={"token": token(browser)}).headers["location"] == "/sign-in"


ENDS = {
    "signing out": end_by_signing_out,
    "another password": lambda site, _: site.console.desk.users.give_password("viewer-in-person", "x", "adm"),
    "another role": lambda site, _: site.console.desk.users.give_role("viewer-in-person", Role.ADMIN, "adm"),
    "removal": lambda site, _: site.console.desk.users.remove("viewer-in-person", "adm"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_session_ends_at_once_with(any_site, end):
    browser, copy = any_site.signed_in(Role.VIEWER), any_site.browser()
    copy.cookies.set(SESSION_COOKIE, browser.cookies[SESSION_COOKIE])
    assert is_signed_in(copy)
    ENDS[end](any_site, browser)
    assert not is_signed_in(copy)


def test_a_password_that_is_changed_while_somebody_signs_in_with_the_old_one_signs_nobody_in(any_site):
    any_site.user("ann", Role.VIEWER)
    users = any_site.console.desk.users
    known = users.secret("ann")
    users.give_password("ann", "another hash", "adm")
    assert any_site.console.sessions.begin(known) is None


def test_a_password_is_hashed_anew_by_the_parameters_of_today_and_nobody_is_signed_out(site):
    from argon2 import PasswordHasher

    site.console.desk.users.add(
        "ann", Role.VIEWER, PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD), "adm"
    )
    browser = site.browser()
    sign_in(browser, "ann")
    kept = site.console.desk.users.secret("ann").password
    assert "m=8," not in kept
    assert passwords.renew_hash(kept, PASSWORD) is None
    assert is_signed_in(browser)
    assert sign_in(site.browser(), "ann").status_code == 303


def test_a_console_without_users_is_opened_once_by_its_link_and_says_so_in_the_place_of_the_name(any_site):
    link = f"/sign-in/{any_site.console.sessions.new_link()}"
    browser = any_site.browser("http://localhost:8093")
    assert "one-time link" in browser.get("/sign-in").text
    assert 'action="/sign-in"' not in browser.get("/sign-in").text
    assert browser.get(link).status_code == 200
    assert browser.post(link).headers["location"] == "/"
    page = browser.get("/groups").text
    assert "No users yet: this machine alone" in page
    assert "<dd>admin</dd>" in page
    assert any_site.browser("http://localhost:8093").post(link).status_code == 403


def test_with_the_first_user_the_link_and_who_came_by_it_are_out(any_site):
    used, unused = any_site.browser(), any_site.browser()
    used.post(f"/sign-in/{any_site.console.sessions.new_link()}")
    assert is_signed_in(used)
    link = any_site.console.sessions.new_link()
    any_site.user("ann", Role.ADMIN)
    assert not is_signed_in(used)
    assert unused.post(f"/sign-in/{link}").status_code == 403
    assert 'action="/sign-in"' in unused.get("/sign-in").text


def test_who_came_by_the_link_is_not_in_again_once_the_last_user_is_removed(any_site):
    browser = any_site.browser()
    browser.post(f"/sign-in/{any_site.console.sessions.new_link()}")
    any_site.user("ann", Role.ADMIN)
    any_site.console.desk.users.remove("ann", "the test")
    assert not is_signed_in(browser)


def test_a_session_of_the_link_that_began_beside_the_first_user_ends_with_the_last(any_site):
    any_site.user("ann", Role.ADMIN)
    browser = any_site.browser()
    with any_site.database.writing() as connection:
        account_rows.add_session(
            connection, browser_session.digest_cookie("beside"), None, 1, any_site.console.clock() + SESSION_LASTS
        )
    browser.cookies.set(SESSION_COOKIE, "beside")
    any_site.console.desk.users.remove("ann", "the test")
    assert not is_signed_in(browser)


def test_another_site_signs_nobody_in(site):
    site.user("ann", Role.VIEWER)
    browser = site.browser()
    browser.headers["sec-fetch-site"] = "cross-site"
    assert sign_in(browser, "ann").status_code == 403
    assert not is_signed_in(browser)


def test_what_is_typed_is_shown_as_text(site):
    site.user("ann", Role.VIEWER)
    page = sign_in(site.browser(), '"><script>alert(1)</script>', "wrong").text
    assert "<script" not in page
    assert 'wrong"' not in page


def test_no_secret_is_in_a_log_an_error_or_a_repr(site, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    site.user("ann", Role.VIEWER)
    link = site.console.sessions.new_link()
    browser = site.browser()
    sign_in(browser, "ann", "a wrong pass phrase")
    cookie = sign_in(browser, "ann").cookies[SESSION_COOKIE]
    mark = token(browser)
    shown = []

    def broken(*_):
        shown.append(repr(site.console) + repr(site.console.desk) + repr(site.console.desk.users.secret("ann")))
        shown.append(repr(site.console.sessions.who(cookie)))
        raise RuntimeError("the console is broken")

    monkeypatch.setattr(site.console.sessions, "use_link", broken)
    answer = browser.post(f"/sign-in/{link}")
    assert (answer.status_code, "the console is broken" in answer.text) == (500, False)
    assert "console fault" in caplog.text
    kept = site.console.desk.users.secret("ann").password
    # What the test's own browser logs is not the console's.
    logged = "".join(each.getMessage() + str(each.exc_info) for each in caplog.records if "httpx" not in each.name)
    for secret in (PASSWORD, "a wrong pass phrase", cookie, mark, link, kept):
        assert secret not in logged + "".join(shown)
    for secret in (PASSWORD, "a wrong pass phrase", cookie, link, kept):
        assert secret not in answer.text


def test_a_link_is_not_used_up_by_a_database_that_does_not_answer(site, monkeypatch):
    link, browser = f"/sign-in/{site.console.sessions.new_link()}", site.browser()

    def away(*_):
        raise DeskUnavailable("The database does not answer.")

    with monkeypatch.context() as silent:
        silent.setattr(UserSessions, "begin_by_link", away)
        assert browser.post(link).status_code == 503
    assert [browser.post(link).status_code for _ in range(2)] == [303, 403]


def test_where_the_database_is_stands_in_the_log_and_in_no_answer_to_a_stranger(site, monkeypatch, caplog):
    def away(*_):
        raise DeskUnavailable("The dead letters' database (postgresql://desk@db.internal/letters) does not answer.")

    monkeypatch.setattr(UserSessions, "who", away)
    monkeypatch.setattr("bridge.console.auth.bearer_tokens.BearerTokens.who", away)
    browser = site.browser()
    browser.cookies.set(SESSION_COOKIE, "made-up")
    with caplog.at_level(logging.WARNING):
        answers = [browser.get("/groups"), browser.get("/api/v1/groups", headers={"authorization": "Bearer x"})]
    for answer in answers:
        assert answer.status_code == 503
        assert "db.internal" not in answer.text
        assert "does not respond" in answer.text
        assert "log" in answer.text
    assert caplog.text.count("db.internal") == 2


def test_a_fault_is_answered_with_the_headers_of_every_page(site, monkeypatch):
    monkeypatch.setattr(site.console.sessions, "use_link", lambda token: 1 // 0)
    answer = site.browser().post("/sign-in/x")
    assert answer.status_code == 500
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
