"""Stacks of real processes, and their logs in the report of what failed."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.delivery_checks import choose
from tests.processes import Stack, forked, from_nothing, mortal_stack, pytest_runtest_makereport, stack

__all__ = ["forked", "from_nothing", "mortal_stack", "pytest_runtest_makereport", "stack"]

COMPLETION = {"commit": "completion"}
STEPS = tuple(f"tests.handlers.fates.{name}" for name in ("first", "second", "third"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the databases of each test: a slow test runs on PostgreSQL alone, which users run in production.

    Any other test runs on SQLite, and with the slow tests on PostgreSQL. A test that names its database keeps it.
    """
    if "desk_url" not in metafunc.fixturenames:
        return
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "desk_url" not in named:
        slow = metafunc.definition.get_closest_marker("slow") is not None
        postgresql = pytest.param("postgresql", marks=pytest.mark.slow)
        metafunc.parametrize("desk_url", [postgresql] if slow else ["sqlite", postgresql], indirect=True)


@pytest.fixture
def desk_url(request: pytest.FixtureRequest, stack: Stack) -> str:
    """The database of the stack's desk: SQLite or PostgreSQL."""
    url = f"sqlite:///{stack.folder}/letters.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    stack.environ["DEADLETTERS_DATABASE_URL"] = url
    return url


@pytest.fixture
def innocents(stack: Stack) -> Stack:
    """A topic of three handlers, one by one and in batches, that do what a message says: be slow, or kill."""
    stack.environ["HANDLERS"] = "tests.handlers.innocents"
    stack.make_topics("orders")
    return stack


@pytest.fixture(scope="session")
def calm(kafka: Any, redis_shared: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One bridge and one worker that live through all tests, each of which has a topic of its own.

    tests/handlers/fates.py has the handlers; `payments` is a table in a SQLite file.
    """
    folder = tmp_path_factory.mktemp("calm")
    database = folder / "payments.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE payments (id INTEGER)")
    connection.close()
    environ = {"TEST_DATABASE": f"sqlite:///{database}"}
    with Stack(kafka.bootstrap_servers, redis_shared.fresh_url(), "calm", folder, "", **environ) as made:
        choose(
            made,
            {
                "orders": COMPLETION,
                "many": COMPLETION,
                "slow": COMPLETION,
                "odd": COMPLETION,
                "keyed": {**COMPLETION, "order": "key"},
                "keyed_batches": {**COMPLETION, "order": "key"},
                "line": {**COMPLETION, "order": "partition"},
                "blocking": {**COMPLETION, "order": "partition"},
                "steps": {**COMPLETION, "sequence": STEPS},
                "payments": COMPLETION,
                "named": COMPLETION,
                "named_many": COMPLETION,
            },
        )
        made.make_topics("orders", "many", "slow", "odd", "keyed", "line", "blocking", "steps", "payments")
        made.make_topics("keyed_batches", "named", "named_many", partitions=2)
        made.bridge()
        made.worker()
        yield made
