"""The desk on both of its databases."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from bridge.deadletters.db.database import Database
from tests.processes import forked
from tests.servers.postgres import PostgresServer

__all__ = ["forked"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A slow test has PostgreSQL alone, unless it names its databases: of SQLite the many quick tests are enough."""
    items[:] = [each for each in items if not _is_left_out(each)]


def _is_left_out(item: pytest.Item) -> bool:
    if not (item.path.parent == Path(__file__).parent and isinstance(item, pytest.Function)):
        return False
    has = item.callspec.params.get("new_database") if hasattr(item, "callspec") else None
    named = any(mark.args[0] == "new_database" for mark in item.iter_markers("parametrize"))
    return has == "sqlite" and not named and item.get_closest_marker("slow") is not None


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
