"""The desk on both of its databases."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from bridge.deadletters.store.database import Database
from tests.servers import postgres
from tests.servers.missing import need
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    need(postgres.missing())
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes an empty database, and gives its URL."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path}/{uuid4().hex}.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")

    def made() -> str:
        name = f"desk_{uuid4().hex}"
        plain = server.url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return server.url.rpartition("/")[0] + f"/{name}"

    return made


@pytest.fixture
def database_url(new_database: Callable[[], str]) -> str:
    """The URL of a database that is empty yet."""
    return new_database()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """One with the desk's tables."""
    found = Database(database_url)
    found.migrate()
    yield found
    found.close()
