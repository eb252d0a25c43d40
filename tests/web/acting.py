"""A console on a database, of whose Kafka and Redis nothing is known, and people who sign in to it."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from starlette.testclient import TestClient

from bridge.deadletters import fates
from bridge.deadletters.desk import Desk
from bridge.deadletters.plans import counting
from bridge.deadletters.plans import plans as desk_plans
from bridge.deadletters.store.database import Database
from bridge.errors import KafkaUnavailable
from bridge.handlers import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.web.app import application
from bridge.web.console import Console
from bridge.web.cookies import COOKIE
from bridge.web.roles import Role
from tests.desk.rows import kind, letter
from tests.web.site import session

HANDLER = "orders.handlers.charge"


def desk_of(database: Database, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Of an app with one handler, while neither Kafka nor Redis can be asked."""

    def away(*_: Any, **__: Any) -> Any:
        raise KafkaUnavailable("Kafka does not answer.")

    for name in ("configs", "extents", "readers"):
        monkeypatch.setattr(counting, name, away)
    monkeypatch.setattr(fates, "all_topics", away)
    for module in (counting, fates, desk_plans):
        monkeypatch.setattr(module, "admin_client", lambda properties: None)
    routes = Routes({HANDLER: Handler(HANDLER, ("orders",), "q", 1, 0.0)})
    app: Celery = SimpleNamespace(tasks={})  # type: ignore[assignment]
    return Desk(app, Settings(FileSettings(), EnvironmentSettings(), "", {}), routes, database)


class Person:
    """Somebody signed in, in a browser of their own."""

    def __init__(self, console: Console, name: str, role: Role) -> None:
        self._browser = TestClient(application(console), base_url="https://localhost", follow_redirects=False)
        cookie = session(console, name, role)
        self._browser.cookies.set(COOKIE, cookie)
        who = console.sessions.who(cookie)
        assert who is not None
        self.token, self.cookie = who.token, f"{COOKIE}={cookie}"

    def get(self, path: str) -> Any:
        return self._browser.get(path)

    def post(self, path: str, **fields: Any) -> Any:
        return self._browser.post(path, data={"token": self.token, **fields})

    def form(self, page: str, action: str) -> dict[str, str]:
        """The hidden fields of a page's form, as a browser would send them."""
        (found,) = re.findall(rf'<form[^>]*action="{action}".*?</form>', self.get(page).text, re.S)
        return dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', found))


def open_letters(database: Database, count: int, handler: str = HANDLER, **other: Any) -> list[int]:
    """Open letters of a handler."""
    with database.writing() as connection:
        mine = kind(connection, handler, **other)
        return [letter(connection, mine, offset) for offset in range(count)]
