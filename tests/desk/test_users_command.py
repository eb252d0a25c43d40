"""`bridge deadletters users`, as a user runs it, on both databases."""

import sys

import pytest
import typer

from bridge.cli import command_io
from bridge.cli.command_io import FAULTS, NOT_FOUND
from bridge.console.auth import passwords
from bridge.deadletters.db import audit_rows
from tests.desk.commands import Commands
from tests.web.cheap_password_hashes import cheap_hashes

__all__ = ["cheap_hashes"]

PASSWORD = "correct horse battery"


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """The commands, on a desk without users."""
    return Commands(monkeypatch, database_url)


def listed(desk):
    return [(each["name"], each["role"]) for each in desk.given("users")]


def trailed(database):
    with database.reading() as connection:
        return [(each.by, each.what, each.said) for each in audit_rows.read_history(connection)]


def added(desk, name="ann", role="operator"):
    return desk.run("users", "add", name, "--role", role, "--password-stdin", "--by", "adm", answer=f"{PASSWORD}\n")


def kept(database):
    from bridge.deadletters.accounts.user_account import Users

    found = Users(database).secret("ann")
    assert found is not None
    return found.password


def test_a_user_is_added_changed_and_removed_each_with_a_line_in_the_trail(desk, database):
    assert added(desk, "Ann").output == "ann was added, as operator\n"
    assert listed(desk) == [("ann", "operator")]
    assert passwords.verify_password(kept(database), PASSWORD)
    assert "was signed out" in desk.run("users", "role", "ann", "admin", "--by", "adm").output
    assert listed(desk) == [("ann", "admin")]
    changed = desk.run("users", "password", "ann", "--password-stdin", "--by", "adm", answer="another pass phrase\n")
    assert "ann has another password" in changed.output
    assert passwords.verify_password(kept(database), "another pass phrase")
    assert "was removed" in desk.run("users", "remove", "ann", "--by", "adm").output
    assert listed(desk) == []
    assert trailed(database) == [
        ("adm", "user", "ann added, as operator"),
        ("adm", "user", "ann is admin now, was operator"),
        ("adm", "user", "ann has another password"),
        ("adm", "user", "ann removed, was admin"),
    ]


def test_who_there_is_is_listed_by_name_and_without_users_it_says_what_that_means(desk):
    assert "opened by a one-time link" in " ".join(desk.run("users").output.split())
    added(desk, "bob", "viewer")
    added(desk, "ann", "admin")
    assert listed(desk) == [("ann", "admin"), ("bob", "viewer")]
    assert desk.given("users")[0]["at"].startswith("20")
    shown = desk.run("users").output
    assert "ann" in shown
    assert "argon2" not in shown


@pytest.mark.parametrize(
    ("words", "answer", "code", "said"),
    [
        (
            ("add", "ann", "--role", "viewer", "--password-stdin"),
            f"{PASSWORD}\n",
            FAULTS,
            "There is a user ann already",
        ),
        (
            ("add", "a b", "--role", "viewer", "--password-stdin"),
            f"{PASSWORD}\n",
            FAULTS,
            "A user's name is of letters",
        ),
        (("add", "bob", "--role", "viewer", "--password-stdin"), "short\n", FAULTS, "12 to 1,000 characters"),
        (("add", "bob", "--role", "viewer", "--password-stdin"), "", FAULTS, "no password in its first line"),
        (
            ("add", "bobbobbobbob", "--role", "viewer", "--password-stdin"),
            "bobbobbobbob1\n",
            FAULTS,
            "more than the user's",
        ),
        (("add", "bob", "--role", "root", "--password-stdin"), f"{PASSWORD}\n", 2, "'root' is not one of"),
        (("add", "bob", "--password-stdin"), f"{PASSWORD}\n", 2, "--role"),
        (("add", "bob", PASSWORD, "--role", "viewer"), "", 2, "unexpected extra argument"),
        (("add", "bob", "--role", "viewer"), f"{PASSWORD}\n", NOT_FOUND, "--password-stdin"),
        (("password", "bob", "--password-stdin"), f"{PASSWORD}\n", FAULTS, "There is no user bob"),
        (("role", "bob", "admin"), "", FAULTS, "There is no user bob"),
        (("remove", "bob"), "", FAULTS, "There is no user bob"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_changed(desk, database, words, answer, code, said):
    added(desk)
    before = trailed(database)
    ended = desk.run("users", *words, answer=answer)
    assert ended.exit_code == code
    assert said in " ".join(ended.output.replace("│", "").split())
    assert listed(desk) == [("ann", "operator")]
    assert trailed(database) == before
    assert PASSWORD not in ended.output or words[2] == PASSWORD


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_a_password_is_asked_for_on_the_terminal_twice_and_not_shown(desk, database, monkeypatch):
    asked = []

    def prompt(words, **how):
        asked.append((words, how["hide_input"], how["confirmation_prompt"]))
        return PASSWORD

    monkeypatch.setattr(command_io, "has_terminal", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    assert desk.run("users", "add", "ann", "--role", "viewer").exit_code == 0
    assert asked == [("Password", True, True)]
    assert passwords.verify_password(kept(database), PASSWORD)


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_without_the_extra_the_command_says_what_to_install(desk, monkeypatch):
    monkeypatch.delitem(sys.modules, "bridge.console.auth.passwords")
    monkeypatch.setitem(sys.modules, "argon2", None)
    for module in [name for name in sys.modules if name.startswith("bridge.console")]:
        monkeypatch.delitem(sys.modules, module)
    ended = desk.run("users", "add", "ann", "--role", "viewer", "--password-stdin", answer=f"{PASSWORD}\n")
    assert ended.exit_code == NOT_FOUND
    assert "pip install '.[console]'" in " ".join(ended.output.split())


def sees(desk, *words):
    (found,) = desk.given(*words)
    return found["topics"], found["consumer_groups"]


def test_a_user_is_added_with_topics_and_consumer_groups_and_gets_others(desk, database):
    scope = ("--topics", "payments.*, refunds", "--topics", "orders", "--consumer-groups", "eu")
    words = ("users", "add", "ann", "--role", "viewer", "--password-stdin", "--by", "adm", *scope)
    said = "ann was added, as viewer, and sees topics payments.*, refunds, orders; consumer groups eu"
    assert " ".join(desk.run(*words, answer=f"{PASSWORD}\n").output.split()) == said
    assert sees(desk, "users") == (["payments.*", "refunds", "orders"], ["eu"])
    assert "payments.*" in desk.run("users").output
    assert desk.run("users", "scope", "ann", "--topics", "orders", "--by", "adm").exit_code == 0
    assert sees(desk, "users") == (["orders"], [])
    assert desk.run("users", "scope", "ann", "--everything", "--by", "adm").exit_code == 0
    assert sees(desk, "users") == ([], [])
    assert [line[2] for line in trailed(database)] == [
        "ann added, as viewer, for topics payments.*, refunds, orders; consumer groups eu",
        "ann sees topics orders now, saw topics payments.*, refunds, orders; consumer groups eu",
        "ann sees everything now, saw topics orders",
    ]


@pytest.mark.parametrize("words", [(), ("--topics", ""), ("--topics", " , "), ("--everything", "--topics", "orders")])
def test_a_scope_that_says_nothing_changes_nothing(desk, words):
    added(desk)
    desk.run("users", "scope", "ann", "--topics", "orders")
    assert desk.run("users", "scope", "ann", *words).exit_code != 0
    assert sees(desk, "users") == (["orders"], [])


def test_an_admin_of_some_topics_is_not_the_last_admin(database):
    from bridge.deadletters.accounts.user_account import Role, UserAdministration, Users
    from bridge.deadletters.model.letter_scope import LetterScope
    from bridge.errors import UserRefused

    users, scope = Users(database), LetterScope(("orders",))
    users.add("ada", Role.ADMIN, "hash", "adm")
    users.add("bob", Role.ADMIN, "hash", "adm", scope)
    admins, ada = UserAdministration(database), users.all()[0].id
    with pytest.raises(UserRefused, match="ada is the last admin"):
        admins.remove(ada, "bob")
    with pytest.raises(UserRefused, match="ada is the last admin"):
        admins.give_scope(ada, LetterScope(), scope, "bob")
