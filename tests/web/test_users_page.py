"""Who may sign in: added, changed, signed out and removed by an admin, in a browser."""

import re

import pytest

from bridge.console.auth import passwords
from bridge.deadletters.accounts.user_account import LINK_LASTS, Role
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.model.letter_scope import LetterScope
from bridge.errors import UserRefused
from tests.web.site import PASSWORD, sign_in, token

NEW = "another pass phrase"


@pytest.fixture
def ada(site):
    """An admin's browser."""
    site.user("ada", Role.ADMIN)
    browser = site.browser()
    sign_in(browser, "ada")
    return browser


def field(browser, page, name="link"):
    return re.findall(rf'name="{name}" value="([^"]*)"', browser.get(page).text)[0]


def invited(browser, name="bob", role="operator", **other):
    link = field(browser, "/admin/users")
    form = {"token": token(browser), "link": link, "name": name, "role": role, **other}
    return browser.post("/admin/users", data=form)


def link_in(answer):
    return re.findall(r'href="https://localhost(/welcome/[^"]+)"', answer.text)[0]


def user(site, name):
    return next((each for each in site.console.desk.users.all() if each.name == name), None)


def act(browser, site, name, what, **fields):
    """Send a form of a user's page."""
    return browser.post(f"/admin/users/{user(site, name).id}/{what}", data={"token": token(browser), **fields})


def trailed(site):
    return [
        (each.by, each.said)
        for each in site.console.desk.trail.page(EntryFilter(what=("user",))).entries
        if "signed in" not in each.said
    ]


def test_an_admin_sees_who_may_sign_in_and_no_hash(site):
    site.user("ann", Role.VIEWER)
    page = site.signed_in(Role.ADMIN).get("/admin/users").text
    assert "2 users may sign in by name" in page
    assert "<bdi>ann</bdi>" in page
    assert "argon2" not in page


def test_without_users_and_behind_a_proxy_it_says_who_gets_in(new_site):
    proxy = {
        "DEADLETTERS_TRUSTED_PROXY": "10.0.0.7",
        "DEADLETTERS_PROXY_USER_HEADER": "X-User",
        "DEADLETTERS_PROXY_ROLE": "admin",
    }
    browser = new_site(**proxy).browser(sent_from="10.0.0.7")
    page = browser.get("/admin/users", headers={"X-User": "ann"}).text
    assert "No users may sign in by name" in page
    assert "names in <bdi>X-User</bdi>, as admin." in page


def test_who_is_no_admin_is_not_offered_the_page(site):
    assert "/admin/users" in site.signed_in(Role.ADMIN).get("/account").text
    assert "/admin/users" not in site.signed_in(Role.OPERATOR).get("/account").text


def test_who_is_added_chooses_a_password_by_a_link_that_works_once(any_site):
    any_site.user("ada", Role.ADMIN)
    ada, bob = any_site.browser(), any_site.browser()
    sign_in(ada, "ada")
    link = link_in(invited(ada))
    assert "no password yet" in ada.get("/admin/users").text
    assert sign_in(bob, "bob", "").status_code == 403
    # Who looks at it, a mail program, does not use it up.
    assert "Choose a password, <bdi>bob</bdi>" in bob.get(link).text
    assert bob.post(link, data={"new": NEW, "again": NEW}).headers["location"] == "/sign-in"
    assert sign_in(bob, "bob", NEW).status_code == 303
    assert user(any_site, "bob").role == "operator"
    for answer in (bob.get(link), bob.post(link, data={"new": PASSWORD, "again": PASSWORD})):
        assert answer.status_code == 403
        assert "This link was used already" in answer.text
    assert sign_in(bob, "bob", PASSWORD).status_code == 403
    said = [("bob", "bob has chosen a password"), ("ada", "bob added, as operator, to choose a password by a link")]
    assert trailed(any_site)[:2] == said


def test_a_link_is_over_after_three_days(site, ada, monkeypatch):
    link = link_in(invited(ada))
    monkeypatch.setattr(
        "bridge.deadletters.accounts.user_account.sql.read_clock", lambda _: site.console.clock() + LINK_LASTS + 60_000
    )
    assert site.browser().get(link).status_code == 403
    assert site.browser().post(link, data={"new": NEW, "again": NEW}).status_code == 403


@pytest.mark.parametrize(
    ("new", "again", "words"), [(NEW, "x", "The two passwords differ"), ("short", "short", "12 to 1,000")]
)
def test_a_password_that_is_refused_leaves_the_link(site, ada, new, again, words):
    link = link_in(invited(ada))
    answer = site.browser().post(link, data={"new": new, "again": again})
    assert (answer.status_code, words in answer.text) == (400, True)
    assert site.browser().get(link).status_code == 200


def test_the_form_that_adds_somebody_loaded_again_shows_the_same_link_and_adds_nobody(site, ada):
    form = {"token": token(ada), "link": field(ada, "/admin/users"), "name": "Bob ", "role": "viewer"}
    answers = [ada.post("/admin/users", data=form) for _ in range(2)]
    assert link_in(answers[0]) == link_in(answers[1])
    assert len(trailed(site)) == 2
    site.browser().post(link_in(answers[0]), data={"new": NEW, "again": NEW})
    again = ada.post("/admin/users", data=form)
    assert again.status_code == 400
    assert "There is a user bob already" in again.text
    assert sign_in(site.browser(), "bob", NEW).status_code == 303


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "<b>"}, "A user&#39;s name is of letters"),
        ({"role": "king"}, "A role is viewer, operator or admin"),
        ({"link": "guessed"}, "This form has no link"),
    ],
)
def test_what_adds_nobody_says_why_and_keeps_what_was_typed(site, ada, fields, words):
    answer = invited(ada, **fields)
    assert (answer.status_code, words in answer.text) == (400, True)
    assert [each.name for each in site.console.desk.users.all()] == ["ada"]
    if "name" not in fields:
        assert 'value="bob"' in answer.text


def test_another_role_signs_out_and_of_two_who_decide_the_second_is_told(site, ada):
    site.user("bob", Role.OPERATOR)
    bob = site.browser()
    sign_in(bob, "bob")
    assert act(ada, site, "bob", "role", was="operator", role="viewer").status_code == 303
    assert (user(site, "bob").role, bob.get("/groups").status_code) == ("viewer", 303)
    assert act(ada, site, "bob", "role", was="operator", role="viewer").status_code == 303
    answer = act(ada, site, "bob", "role", was="operator", role="admin")
    assert answer.status_code == 409
    assert "bob is viewer by now. bob is viewer now, was operator, by ada." in answer.text
    assert [said for _, said in trailed(site)].count("bob is viewer now, was operator") == 1


def test_a_new_link_ends_the_password_and_the_sessions_and_the_same_form_shows_it_again(site, ada):
    site.user("bob", Role.OPERATOR)
    bob = site.browser()
    sign_in(bob, "bob")
    link = field(ada, f"/admin/users/{user(site, 'bob').id}")
    first, second = (link_in(act(ada, site, "bob", "link", link=link)) for _ in range(2))
    assert first == second
    assert bob.get("/groups").status_code == 303
    assert sign_in(bob, "bob").status_code == 403
    bob.post(first, data={"new": NEW, "again": NEW})
    assert sign_in(bob, "bob", NEW).status_code == 303


def test_an_admin_ends_the_sessions_of_somebody_whose_password_stays(site, ada):
    site.user("bob", Role.OPERATOR)
    bob = site.browser()
    sign_in(bob, "bob")
    for _ in range(2):
        assert act(ada, site, "bob", "sign-out").status_code == 303
    assert bob.get("/groups").status_code == 303
    assert sign_in(bob, "bob").status_code == 303
    assert [said for _, said in trailed(site)].count("bob signed out everywhere") == 1


def test_who_is_removed_is_out_and_removed_once(site, ada):
    site.user("bob", Role.OPERATOR)
    bob, gone = site.browser(), user(site, "bob").id
    sign_in(bob, "bob")
    for _ in range(2):
        answer = ada.post(f"/admin/users/{gone}/remove", data={"token": token(ada)})
        assert answer.headers["location"] == "/admin/users"
    assert bob.get("/groups").status_code == 303
    assert [said for _, said in trailed(site)].count("bob removed, was operator") == 1
    assert ada.get(f"/admin/users/{gone}").status_code == 404


@pytest.mark.parametrize("what", ["role", "link", "remove"])
def test_nobody_locks_themselves_out(site, ada, what):
    site.user("eve", Role.ADMIN)
    fields = {"was": "admin", "role": "viewer", "link": field(ada, "/admin/users")}
    answer = act(ada, site, "ada", what, **fields)
    assert answer.status_code == 400
    assert "Another admin can change" in answer.text
    assert user(site, "ada").role == "admin"
    assert sign_in(site.browser(), "ada").status_code == 303


@pytest.mark.parametrize("what", ["role", "link", "remove"])
def test_the_last_admin_with_a_password_stays_one(any_site, what):
    any_site.user("ada", Role.ADMIN)
    ada = any_site.browser()
    sign_in(ada, "ada")
    invited(ada, "eve", "admin")
    admins, id_ = any_site.console.desk.admins, user(any_site, "ada").id
    acts = {
        "role": lambda: admins.give_role(id_, "admin", Role.VIEWER, "eve"),
        "link": lambda: admins.new_link(id_, "x" * 43, "eve"),
        "remove": lambda: admins.remove(id_, "eve"),
    }
    with pytest.raises(UserRefused, match="ada is the last admin with a password"):
        acts[what]()
    assert user(any_site, "ada").role == "admin"


def test_the_first_user_is_an_admin_whom_the_one_time_link_makes(site):
    browser = site.browser()
    browser.post(f"/sign-in/{site.console.sessions.new_link()}")
    assert invited(browser, "ada", "viewer").status_code == 400
    assert site.console.desk.users.all() == []
    answer = invited(browser, "ada", "admin")
    assert "There is a user now, and the one-time link that you came by is over." in answer.text
    assert browser.get("/groups").status_code == 303
    browser.post(link_in(answer), data={"new": NEW, "again": NEW})
    assert sign_in(browser, "ada", NEW).status_code == 303


def test_for_who_has_no_password_yet_a_wrong_one_takes_as_long(site, ada, monkeypatch):
    invited(ada)
    tried: list[str] = []

    def verified(kept: str, password: str) -> bool:
        tried.append(kept)
        return False

    passwords.verify_password(None, "x")
    monkeypatch.setattr(passwords, "_verify_hash", verified)
    assert sign_in(site.browser(), "bob", "x").status_code == 403
    assert tried[0].startswith("$argon2")


def test_an_admin_gives_somebody_topics_and_they_are_signed_out(site, ada):
    assert invited(ada, topics="payments.*, refunds", consumer_groups="").status_code == 200
    assert user(site, "bob").topics == "payments.* refunds"
    assert "topics payments.*, refunds" in ada.get("/admin/users").text
    site.user("eve", Role.OPERATOR)
    eve = site.browser()
    sign_in(eve, "eve")
    assert eve.get("/groups").status_code == 200
    changed = act(ada, site, "eve", "scope", was_topics="", was_groups="", topics="orders", consumer_groups="eu us")
    assert changed.status_code == 303
    assert (user(site, "eve").topics, user(site, "eve").consumer_groups) == ("orders", "eu us")
    assert eve.get("/groups").status_code == 303
    assert trailed(site)[0] == ("ada", "eve sees topics orders; consumer groups eu, us now, saw everything")


def test_topics_that_somebody_changed_meanwhile_or_that_are_none_are_not_changed(site, ada):
    site.user("eve", Role.OPERATOR)
    late = act(ada, site, "eve", "scope", was_topics="refunds", was_groups="", topics="orders", consumer_groups="")
    assert late.status_code == 409
    assert "eve sees everything by now" in late.text
    for wrong in (",", "x" * 300):
        assert act(ada, site, "eve", "scope", topics=wrong).status_code == 400
    assert act(ada, site, "ada", "scope", topics="orders").status_code == 400
    assert (user(site, "eve").topics, user(site, "ada").topics) == ("", "")


def test_the_first_user_sees_everything(site):
    with pytest.raises(UserRefused, match="an admin who sees everything"):
        site.console.desk.admins.invite("ada", Role.ADMIN, "x" * 43, "me", LetterScope(("orders",)))
    assert site.console.desk.users.all() == []
