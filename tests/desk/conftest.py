"""The desk on both of its databases."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from bridge.deadletters.store.database import Database
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def migrated(postgres_server: PostgresServer) -> str:
    """A database of PostgreSQL with the desk's tables, to be copied: a copy takes a quarter of the time."""
    with closing(Database(postgres_server.new_database("migrated"))) as database:
        database.migrate()
    return "migrated"


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """Makes an empty database, or a copy of PostgreSQL's `template`, and gives its URL."""
    if request.param == "sqlite":
        return lambda template="": f"sqlite:///{tmp_path}/{uuid4().hex}.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda template="template1": server.new_database(template=template)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, new_database: Callable[..., str]) -> str:
    """The URL of a database that is empty yet, or has the desk's tables where the test takes `database` too."""
    if "database" in request.fixturenames and "postgres_server" in request.fixturenames:
        return new_database(request.getfixturevalue("migrated"))
    return new_database()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """One with the desk's tables."""
    found = Database(database_url)
    found.migrate()
    yield found
    found.close()
