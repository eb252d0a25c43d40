"""The desk on both of its databases."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from bridge.deadletters.store.database import Database
from tests.processes import forked
from tests.servers.postgres import PostgresServer

__all__ = ["forked"]


@pytest.fixture(scope="session")
def migrated(postgres_server: PostgresServer) -> str:
    """A database of PostgreSQL with the desk's tables, to be copied: a copy takes a quarter of the time."""
    with closing(Database(postgres_server.new_database("migrated"))) as database:
        database.migrate()
    return "migrated"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """Makes an empty database, or a copy of PostgreSQL's `template`, and gives its URL."""
    if request.param == "sqlite":
        return lambda template="": f"sqlite:///{tmp_path}/{uuid4().hex}.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda template="template1": server.new_database(template=template)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with the desk's tables, to be copied."""
    file = tmp_path_factory.mktemp("desk") / "migrated.db"
    with closing(Database(f"sqlite:///{file}")) as database:
        database.migrate()
    return file


@pytest.fixture
def database_url(request: pytest.FixtureRequest, new_database: Callable[..., str]) -> str:
    """The URL of a database that is empty yet, or has the desk's tables where the test takes `database` too."""
    if "database" not in request.fixturenames:
        return new_database()
    if "postgres_server" in request.fixturenames:
        return new_database(request.getfixturevalue("migrated"))
    url = new_database()
    shutil.copy(request.getfixturevalue("migrated_file"), url.removeprefix("sqlite:///"))
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """One with the desk's tables."""
    found = Database(database_url)
    found.migrate()
    yield found
    found.close()
