"""Signing in by an issuer of OpenID Connect, which is a process of its own here, over HTTP."""

import logging
import time

import pytest

from bridge.console.auth.browser_session import OIDC_COOKIE, SESSION_COOKIE
from bridge.console.auth.oidc_client import FAILURE_MS
from bridge.console.auth.oidc_token import STATE_MS as BEGUN_LASTS
from bridge.deadletters.accounts.account_session import SESSION_LASTS
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import ConsoleRefused
from tests.servers.issuer import CLIENT, SECRET, Issuer, issuer
from tests.web.site import Site, sign_in, token

START = "/sign-in/oidc?then=/letters%3Fkey%3D4711"


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    with issuer(tmp_path_factory.mktemp("issuer")) as found:
        yield found


@pytest.fixture
def there(provider):
    """The issuer, in which ann is an operator."""
    provider.says(preferred_username="ann", groups=["payments", "all"])
    return provider


def settings(there, **other):
    return {
        "DEADLETTERS_CONSOLE_URL": "https://localhost",
        "DEADLETTERS_OIDC_ISSUER": there.url,
        "DEADLETTERS_OIDC_CLIENT_ID": CLIENT,
        "DEADLETTERS_OIDC_CLIENT_SECRET": SECRET,
        "DEADLETTERS_OIDC_ROLE_CLAIM": "groups",
        "DEADLETTERS_OIDC_ROLES": "admin: sre; operator: payments; viewer: all",
        **other,
    }


@pytest.fixture
def here(new_site, there):
    return new_site(**settings(there))


def way_back(browser, there, start=START):
    """The address to which the issuer sends a browser back."""
    return there.comes_back(browser.get(start).headers["location"])


def signed_in(site, there):
    browser = site.browser()
    assert browser.get(way_back(browser, there)).status_code == 303
    return browser


def test_somebody_signs_in_by_the_issuer_and_goes_on_to_where_they_were_going(here, there):
    browser = here.browser()
    page = browser.get(browser.get("/letters?key=4711").headers["location"]).text
    assert f'href="{START}"' in page
    answer = browser.get(way_back(browser, there))
    assert (answer.status_code, answer.headers["location"]) == (303, "/letters?key=4711")
    groups = browser.get("/groups").text
    assert "ann (127.0.0.1 " in groups
    assert "<dd>operator</dd>" in groups
    assert browser.get("/admin/users").status_code == 403
    assert "signs you in and gives you your role" in browser.get("/account").text


def test_the_trail_has_who_signed_in_by_which_issuer(here, there):
    signed_in(here, there)
    (entry,) = here.console.desk.trail.page().entries
    assert entry.by.startswith("ann (127.0.0.1 ")
    assert entry.said == f"signed in by {there.url}, as operator; there: 248"


def test_the_session_is_as_others_are(here, there):
    browser = here.browser()
    said = browser.get(way_back(browser, there)).headers.get_list("set-cookie")
    (cookie,) = [each for each in said if each.startswith(f"{SESSION_COOKIE}=")]
    assert {each.lower() for each in cookie.split("; ")[1:]} == {
        *("httponly", "max-age=43200", "path=/", "samesite=lax", "secure")
    }
    assert OIDC_COOKIE not in browser.cookies
    now = int(time.time() * 1000)
    here.console.clock = lambda: now + SESSION_LASTS + 60_000
    assert browser.get("/groups").status_code == 303


def test_signing_out_ends_it(here, there):
    browser = signed_in(here, there)
    kept = browser.cookies[SESSION_COOKIE]
    assert browser.post("/sign-out", data={"token": token(browser)}).status_code == 303
    browser.cookies.set(SESSION_COOKIE, kept)
    assert browser.get("/groups").status_code == 303


def test_a_user_of_the_same_name_is_somebody_else(here, there):
    here.user("ann", Role.ADMIN)
    browser = signed_in(here, there)
    assert browser.get("/admin/users").status_code == 403
    assert "<dd>operator</dd>" in browser.get("/groups").text
    assert browser.post("/account/sign-out", data={"token": token(browser)}).status_code == 400


def test_two_people_who_are_called_alike_there_are_two(here, there):
    signed_in(here, there)
    there.says(sub="249", preferred_username="ann", groups=["payments"])
    signed_in(here, there)
    assert len({each.by for each in here.console.desk.trail.page().entries}) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"key": 2, "published": 1}, "not signed by the issuer"),
        ({"alg": "none"}, "cannot be verified"),
        ({"alg": "HS256"}, "cannot be verified"),
        ({"aud": "another"}, "its claim aud"),
        ({"aud": None}, "its claim aud"),
        ({"aud": [CLIENT, "another"]}, "made for another client"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "made for another client"),
        ({"azp": "another"}, "made for another client"),
        ({"iss": "https://another.example.com"}, "its claim iss"),
        ({"iss": None}, "its claim iss"),
        ({"exp": 1_000_000_000}, "has expired"),
        ({"exp": None}, "its claim exp"),
        ({"exp": "later"}, "its claim exp"),
        ({"iat": 9_000_000_000}, "its claim iat"),
        ({"nbf": 9_000_000_000}, "its claim nbf"),
        ({"nonce": "another"}, "of another sign-in"),
        ({"nonce": None}, "its claim nonce"),
        ({"nonce": ["another"]}, "of another sign-in"),
        ({"sub": None}, "its claim sub"),
        ({"sub": "\n"}, "its claim sub"),
    ],
    ids=repr,
)
def test_a_token_that_is_not_the_issuers_for_this_sign_in_signs_nobody_in(here, there, said, words):
    browser = here.browser()
    back = way_back(browser, there)
    there.says(groups=["sre"], **said)
    answer = browser.get(back)
    assert answer.status_code == 403
    assert words in answer.text
    assert SESSION_COOKIE not in browser.cookies
    (entry,) = here.console.desk.trail.page().entries
    assert (entry.by, entry.what) == ("not signed in", "failed sign-in")


def test_a_key_that_is_new_is_taken_and_the_old_one_no_more(here, there):
    signed_in(here, there)
    there.says(key=2, groups=["payments"])
    signed_in(here, there)
    browser = here.browser()
    back = way_back(browser, there)
    there.says(key=1, published=2, groups=["payments"])
    assert browser.get(back).status_code == 403


def test_more_audiences_are_taken_where_the_token_was_made_for_this_client(here, there):
    there.says(aud=[CLIENT, "project"], azp=CLIENT, groups=["payments"])
    signed_in(here, there)


def test_the_issuers_answer_works_once(here, there):
    browser = here.browser()
    back = way_back(browser, there)
    begun = browser.cookies[OIDC_COOKIE]
    assert browser.get(back).status_code == 303
    for cookie in (None, begun):
        again = here.browser()
        if cookie:
            again.cookies.set(OIDC_COOKIE, cookie)
        answer = again.get(back)
        assert answer.status_code == 403
        assert "was not begun in this browser, or was ended already" in answer.text


def test_a_code_that_was_used_is_refused(here, there):
    first = here.browser()
    back = way_back(first, there)
    assert first.get(back).status_code == 303
    other = here.browser()
    fresh = way_back(other, there)
    code = back.partition("code=")[2].partition("&")[0]
    answer = other.get(fresh.replace(fresh.partition("code=")[2].partition("&")[0], code))
    assert answer.status_code == 403
    assert "it works once" in answer.text


def test_what_another_browser_has_begun_is_refused(here, there):
    mine, other = here.browser(), here.browser()
    back = way_back(other, there)
    way_back(mine, there)
    for browser in (mine, here.browser()):
        answer = browser.get(back)
        assert answer.status_code == 403
        assert "was not begun in this browser" in answer.text
        assert SESSION_COOKIE not in browser.cookies


@pytest.mark.parametrize("kept", ["", "nonsense", "a.b.c.d.e", "é"])
def test_what_the_browser_kept_cannot_be_made_up(here, kept):
    answer = here.browser().get(
        "/sign-in/oidc/back?code=c&state=s", headers={"cookie": f"{OIDC_COOKIE}={kept}".encode()}
    )
    assert answer.status_code == 403


def test_a_sign_in_is_ended_within_ten_minutes(here, there):
    browser = here.browser()
    back = way_back(browser, there)
    now = int(time.time() * 1000)
    here.console.clock = lambda: now + BEGUN_LASTS + 1_000
    assert "more than ten minutes" in browser.get(back).text


def test_what_another_issuer_sends_back_is_refused(here, there):
    browser = here.browser()
    back = way_back(browser, there)
    answer = browser.get(back.partition("&iss=")[0] + "&iss=https%3A%2F%2Fevil.example.com")
    assert answer.status_code == 403
    assert "Another issuer" in answer.text


@pytest.mark.parametrize(
    ("error", "words"), [("access_denied", "access_denied."), ("<script>alert(1)</script>", "it sent no code.")]
)
def test_whom_the_issuer_does_not_sign_in_is_told_so(here, there, error, words):
    browser = here.browser()
    state = way_back(browser, there).partition("state=")[2].partition("&")[0]
    answer = browser.get("/sign-in/oidc/back", params={"state": state, "error": error})
    assert answer.status_code == 403
    assert words in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    "then",
    ["https://evil.example.com/", "//evil.example.com", "/\\evil.example.com", "javascript:alert(1)", "/sign-in"],
)
def test_nobody_is_sent_on_to_another_site(here, there, then):
    browser = here.browser()
    begun = browser.get("/sign-in/oidc", params={"then": then})
    assert begun.headers["location"].startswith(f"{there.url}/authorize?")
    answer = browser.get(there.comes_back(begun.headers["location"]))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_cookie_stays_one_that_browsers_keep_however_long_the_address_is(here, there):
    browser = here.browser()
    back = way_back(browser, there, f"/sign-in/oidc?then=/letters?key={'a' * 3_000}")
    assert len(browser.cookies[OIDC_COOKIE]) < 3_800
    assert browser.get(back).headers["location"] == "/"


@pytest.mark.parametrize("groups", [None, [], ["others"], {"payments": True}, [["payments"]], 7])
def test_who_has_no_role_is_told_so(here, there, groups):
    there.says(preferred_username="eve <b>", groups=groups)
    browser = here.browser()
    answer = browser.get(way_back(browser, there))
    assert answer.status_code == 403
    assert "eve &lt;b&gt; (127.0.0.1 " in answer.text
    assert "the claim groups has none of the values that give one" in answer.text
    assert SESSION_COOKIE not in browser.cookies


def test_who_has_no_role_there_may_have_one_by_default(new_site, there):
    site = new_site(**settings(there, DEADLETTERS_OIDC_ROLE="viewer"))
    there.says(groups="others")
    assert "<dd>viewer</dd>" in signed_in(site, there).get("/groups").text


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("groups", {"groups": "sre"}),
        ("groups", {"groups": ["all", "sre", "payments"]}),
        ("realm_access.roles", {"realm_access": {"roles": ["sre"]}}),
        ("https://example.com/roles", {"https://example.com/roles": ["sre"]}),
    ],
)
def test_the_highest_role_of_the_claim_is_theirs(new_site, there, claim, said):
    site = new_site(**settings(there, DEADLETTERS_OIDC_ROLE_CLAIM=claim))
    there.says(**said)
    assert "<dd>admin</dd>" in signed_in(site, there).get("/groups").text


def test_an_admin_signs_out_all_whom_the_issuer_has_signed_in(here, there):
    ann = signed_in(here, there)
    there.says(sub="250", name="root", groups=["sre"])
    admin = signed_in(here, there)
    assert "Sign out all of" in admin.get("/admin/users").text
    assert admin.post("/admin/issued/sign-out", data={"token": token(admin)}).status_code == 303
    assert [each.get("/groups").status_code for each in (ann, admin)] == [303, 303]
    assert "2 sessions" in here.console.desk.trail.page().entries[0].said


def test_without_the_issuer_its_sessions_are_nobodys(here, there, new_site):
    browser = signed_in(here, there)
    here.console.desk.settings.environment.__dict__["DEADLETTERS_OIDC_ISSUER"] = "https://another.example.com"
    assert browser.get("/groups").status_code == 303


def test_a_console_without_an_issuer_has_no_such_address(site):
    assert site.browser().get("/sign-in/oidc").status_code == 404
    assert site.browser().get("/sign-in/oidc/back").status_code == 404
    assert "/sign-in/oidc" not in site.browser().get("/sign-in").text


def test_while_the_issuer_is_away_it_says_so_and_users_sign_in(new_site, tmp_path, caplog):
    there = Issuer(tmp_path)
    there.says(groups=["sre"])
    site = new_site(**settings(there))
    site.user("bob", Role.VIEWER)
    browser = site.browser()
    answer = browser.get(START)
    assert answer.status_code == 503
    assert "could not be asked" in answer.text
    assert "passwords still work" in answer.text
    assert SECRET not in caplog.text
    assert sign_in(browser, "bob").status_code == 303
    there.start()
    try:
        now = int(time.time() * 1000)
        site.console.clock = lambda: now + FAILURE_MS + 1_000
        other = site.browser()
        back = way_back(other, there)
    finally:
        there.stop()
    assert other.get(back).status_code == 503


def test_the_secret_and_what_is_begun_are_in_no_log_page_or_repr(here, there, caplog):
    caplog.set_level(logging.DEBUG)
    browser = here.browser()
    back = way_back(browser, there)
    code, state = back.partition("code=")[2].partition("&")[0], back.partition("state=")[2].partition("&")[0]
    there.says(aud="another")
    page = browser.get(back).text
    for secret in (SECRET, code, state):
        assert secret not in page
        assert secret not in "".join(each.getMessage() for each in caplog.records if each.name.startswith("bridge"))
    assert SECRET not in repr(here.console) + repr(here.console.issuer)


def test_an_issuer_without_its_extra_is_refused_with_what_to_install(new_site, there, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "joserfc", None)
    monkeypatch.delitem(__import__("sys").modules, "bridge.console.auth.oidc_client")
    monkeypatch.delitem(__import__("sys").modules, "bridge.console.auth.oidc_token")
    with pytest.raises(ConsoleRefused, match=r"joserfc; .*pip install '\.\[oidc\]'"):
        new_site(**settings(there))


def test_of_two_groups_consoles_each_lets_in_its_own_people_and_tokens(new_site, there):
    payments = new_site(**settings(there, DEADLETTERS_OIDC_ROLES="operator: payments"))
    orders = new_site(**settings(there, DEADLETTERS_OIDC_ROLES="operator: orders"))
    browser = signed_in(payments, there)
    assert browser.get("/letters").status_code == 200
    stranger = orders.browser()
    refused = stranger.get(way_back(stranger, there))
    assert (refused.status_code, "have no role here" in refused.text) == (403, True)
    stranger.cookies.update(browser.cookies)
    assert stranger.get("/letters").status_code == 303
    secret = payments.console.desk.tokens.make("nightly", Role.VIEWER, "ann")[1]
    said = {"authorization": f"Bearer {secret}"}
    assert payments.browser().get("/api/v1/letters", headers=said).status_code == 200
    assert orders.browser().get("/api/v1/letters", headers=said).status_code == 401


def test_the_issuer_says_which_topics_and_consumer_groups_somebody_sees(new_site, there):
    claims = {"TOPICS_CLAIM": "desk.topics", "CONSUMER_GROUPS_CLAIM": "desk_groups"}
    site = new_site(**settings(there, **{f"DEADLETTERS_OIDC_{name}": claim for name, claim in claims.items()}))
    there.says(preferred_username="ann", groups=["all"], desk={"topics": ["payments.*", "refunds"]}, desk_groups="eu")
    browser = signed_in(site, there)
    assert "topics payments.*, refunds; consumer groups eu" in browser.get("/groups").text
    (entry,) = site.console.desk.trail.page().entries
    assert "as viewer, for topics payments.*, refunds; consumer groups eu; there:" in entry.said


@pytest.mark.parametrize("claimed", [{}, {"desk": []}, {"desk": ""}, {"desk": {"a": 1}}, {"desk": [None, 7]}])
def test_who_has_no_topics_by_the_issuer_does_not_get_in(new_site, there, claimed):
    site = new_site(**settings(there, DEADLETTERS_OIDC_TOPICS_CLAIM="desk"))
    there.says(preferred_username="ann", groups=["all"], **claimed)
    browser = site.browser()
    answer = browser.get(way_back(browser, there))
    assert answer.status_code == 403
    assert "see nothing here" in answer.text
    assert browser.get("/groups").status_code == 303


def test_a_session_of_before_the_claim_was_set_is_over(new_site, there):
    site = new_site(**settings(there))
    browser = signed_in(site, there)
    assert browser.get("/groups").status_code == 200
    later = Site(
        site.console.desk.settings.environment.DEADLETTERS_DATABASE_URL,
        **settings(there, DEADLETTERS_OIDC_TOPICS_CLAIM="desk"),
    )
    again = later.browser()
    again.cookies.set(SESSION_COOKIE, browser.cookies[SESSION_COOKIE])
    assert again.get("/groups").status_code == 303
    later.close()
