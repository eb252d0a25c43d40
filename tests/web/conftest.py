"""The console as its users have it, over a desk in SQLite: pages are asked for by a browser that is signed in."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from celery import Celery
from pydantic import BaseModel
from starlette.testclient import TestClient

from bridge.console.asgi_app import build_application
from bridge.console.auth.browser_session import SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.handler_routes import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.desk.letters import HANDLER
from tests.servers.postgres import PostgresServer
from tests.web.cheap_password_hashes import cheap_hashes
from tests.web.site import Site, session

__all__ = ["cheap_hashes"]

#: A browser by its role.
Browser = Callable[..., TestClient]


class Order(BaseModel):
    """What the handler takes."""

    amount: int


@pytest.fixture
def desk(tmp_path: Path, empty_desk: Path) -> Iterator[DeadLetterService]:
    """A desk without Kafka and Redis, whose handler takes orders."""
    url = f"sqlite:///{shutil.copy(empty_desk, tmp_path / 'letters.db')}"
    database = Database(url)
    made = EnvironmentSettings(DEADLETTERS_DATABASE_URL=url, BRIDGE_GROUP="shop")
    settings = Settings(FileSettings(), made, "memory://", {"bootstrap.servers": "localhost:1"})
    with Celery("shop", set_as_current=False) as app:
        app.conf.update(DEFAULTS)

        def charge(order: Order) -> None:
            raise AssertionError("it runs")

        declare_handler(app, ("orders",), {"name": HANDLER})(charge)
        yield DeadLetterService(app, settings, Routes({HANDLER: Handler(HANDLER, ("orders",), "q", 1, 0.0)}), database)
    database.close()


@pytest.fixture
def record(desk: DeadLetterService) -> Callable[..., None]:
    """Records letters (tests/desk/letters.py)."""
    ids = IdCache()

    def recorded(*found: object, largest: int = 1_000_000) -> None:
        with desk.database.writing() as connection:
            LetterWriter(connection, ids, int(time.time() * 1000), largest).record(found)  # type: ignore[arg-type]

    return recorded


@pytest.fixture
def console(desk: DeadLetterService) -> Console:
    """The console over it."""
    return Console(desk, "shop @ localhost:1")


@pytest.fixture
def browser(console: Console) -> Iterator[Browser]:
    """Makes a browser in which somebody of a role is signed in; `token` is what their forms bring along."""
    opened = []

    def opens(role: Role = Role.OPERATOR) -> TestClient:
        client = signed_in(console, role)
        opened.append(client)
        return client

    yield opens
    for each in opened:
        each.close()


def signed_in(console: Console, role: Role) -> TestClient:
    """A browser in which somebody of a role is signed in."""
    client = TestClient(build_application(console), base_url="https://localhost", follow_redirects=False)
    cookie = session(console, "ann" if role is Role.OPERATOR else str(role), role)
    client.cookies.set(SESSION_COOKIE, cookie)
    client.token = console.sessions.who(cookie).token  # type: ignore[attr-defined, union-attr]
    return client


@pytest.fixture(scope="session")
def empty_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with the desk's tables, to be copied: making them takes most of a page's test."""
    file = tmp_path_factory.mktemp("desk") / "empty.db"
    with closing(Database(f"sqlite:///{file}")) as database:
        database.migrate()
    return file


@pytest.fixture
def new_site(tmp_path: Path, empty_desk: Path) -> Iterator[Callable[..., Site]]:
    """Makes a console on SQLite, with these settings besides."""
    made: list[Site] = []

    def make(**environment: str) -> Site:
        shutil.copy(empty_desk, tmp_path / f"desk-{len(made)}.db")
        made.append(Site(f"sqlite:///{tmp_path}/desk-{len(made)}.db", **environment))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    """A console on SQLite, without users."""
    return new_site()


@pytest.fixture(scope="session")
def console_template(postgres_server: PostgresServer) -> str:
    """A database of PostgreSQL with the desk's tables, to be copied."""
    with closing(Database(postgres_server.new_database("console_template"))) as database:
        database.migrate()
    return "console_template"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)])
def any_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A console on each of the databases."""
    if request.param == "sqlite":
        made = Site(f"sqlite:///{shutil.copy(request.getfixturevalue('empty_desk'), tmp_path / 'desk.db')}")
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        made = Site(server.new_database(template=request.getfixturevalue("console_template")))
    yield made
    made.close()
