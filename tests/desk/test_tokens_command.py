"""`bridge deadletters users tokens`, as a user runs it, on both databases."""

import time

import pytest
from sqlalchemy import select, update

from bridge.cli.command_io import FAULTS
from bridge.deadletters.accounts.api_token import ApiTokens
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import audit_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.errors import TokenRefused
from tests.desk.commands import Commands

DAY = 86_400_000


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """The commands, on a desk without tokens."""
    return Commands(monkeypatch, database_url)


def now():
    return int(time.time() * 1000)


def trailed(database):
    with database.reading() as connection:
        return [(each.by, each.what, each.said.partition(", until")[0]) for each in audit_rows.read_history(connection)]


def test_a_token_is_made_shown_once_listed_without_its_secret_and_revoked(desk, database):
    made = desk.run("users", "tokens", "make", "deploy", "--role", "operator", "--days", "30", "--by", "ann")
    assert made.exit_code == 0
    secret = made.stdout.strip()
    assert secret.startswith("bdl_")
    assert len(secret) > 40
    assert "shown this once" in made.stderr
    assert secret not in made.stderr
    (listed,) = desk.given("users", "tokens")
    assert (listed["name"], listed["role"], listed["by"], listed["used_at"]) == ("deploy", "operator", "ann", None)
    assert secret not in str(listed) + desk.run("users", "tokens").output
    assert "was revoked" in desk.run("users", "tokens", "revoke", listed["id"], "--by", "bob").output
    assert desk.given("users", "tokens") == []
    assert trailed(database) == [
        ("ann", "token", "deploy made, as operator"),
        ("bob", "token", "deploy revoked, was operator"),
    ]


def test_only_a_hash_of_a_token_is_in_the_database(database):
    _, secret = ApiTokens(database).make("deploy", Role.VIEWER, "ann")
    with database.reading() as connection:
        kept = connection.execute(select(tables.tokens)).one()
        said = connection.execute(select(tables.trail)).all()
    assert secret.encode() not in kept.digest
    assert secret not in str(kept) + str(said)


def test_a_token_is_found_by_its_secret_until_it_ends_or_is_revoked(database):
    tokens = ApiTokens(database)
    made, secret = tokens.make("deploy", Role.OPERATOR, "ann", days=2)
    assert tokens.who(secret, now()) is not None
    assert tokens.who(secret[:-1], now()) is None
    assert tokens.who(secret, made.until - 1) is not None
    assert tokens.who(secret, made.until) is None
    tokens.revoke(made.id, "ann")
    assert tokens.who(secret, now()) is None


def test_when_it_was_used_is_noted_once_a_minute(database):
    tokens = ApiTokens(database)
    _, secret = tokens.make("deploy", Role.OPERATOR, "ann")
    for at, noted in ((100_000, 100_000), (159_999, 100_000), (160_000, 160_000)):
        tokens.who(secret, at)
        assert tokens.all()[0].used_at == noted


def test_two_living_tokens_never_share_a_name_so_the_trail_tells_them_apart(database):
    tokens = ApiTokens(database)
    made, _ = tokens.make("deploy", Role.VIEWER, "ann")
    with pytest.raises(TokenRefused, match="There is a token deploy already"):
        tokens.make(" deploy ", Role.VIEWER, "ann")
    with database.writing() as connection:
        connection.execute(update(tables.tokens).values(until=now() - 1))
    assert tokens.make("deploy", Role.VIEWER, "ann")[0].id != made.id


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("make", " ", "--role", "viewer"), "A token's name says its purpose"),
        (("make", "x" * 101, "--role", "viewer"), "A token's name says its purpose"),
        (("make", "a\x1bb", "--role", "viewer"), "A token's name says its purpose"),
        (("make", "deploy", "--role", "viewer", "--days", "0"), "1 to 366 days"),
        (("make", "deploy", "--role", "viewer", "--days", "367"), "1 to 366 days"),
        (("revoke", "7"), "There is no token 7"),
    ],
)
@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_what_cannot_be_done_is_said_and_nothing_is_changed(desk, database, words, said):
    ended = desk.run("users", "tokens", *words)
    assert ended.exit_code == FAULTS
    assert said in " ".join(ended.output.split())
    assert trailed(database) == []


def test_a_token_is_made_for_some_topics_for_good(desk):
    made = desk.run("users", "tokens", "make", "deploy", "--role", "viewer", "--topics", "payments.*")
    assert made.exit_code == 0
    (listed,) = desk.given("users", "tokens")
    assert (listed["topics"], listed["consumer_groups"]) == (["payments.*"], [])
    assert "payments.*" in desk.run("users", "tokens").output
    assert desk.run("users", "tokens", "make", "other", "--role", "viewer", "--topics", "").exit_code == FAULTS
