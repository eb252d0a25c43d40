"""A console on a database, of whose Kafka and Redis nothing is known, and people who sign in to it."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from starlette.testclient import TestClient

from bridge.console.asgi_app import build_application
from bridge.console.auth.browser_session import SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.database import Database
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.replay import ledger_fates, plan_preview
from bridge.deadletters.replay import plan_service as desk_plans
from bridge.errors import KafkaUnavailable
from bridge.handler_routes import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.rows import kind, letter
from tests.web.site import session

HANDLER = "orders.handlers.charge"


def desk_of(database: Database, monkeypatch: pytest.MonkeyPatch) -> DeadLetterService:
    """Of an app with one handler, while neither Kafka nor Redis can be asked."""

    def away(*_: Any, **__: Any) -> Any:
        raise KafkaUnavailable("Kafka does not answer.")

    for name in ("read_topic_configs", "read_extents", "find_reading_groups"):
        monkeypatch.setattr(plan_preview, name, away)
    monkeypatch.setattr(ledger_fates, "read_cluster", away)
    for module in (plan_preview, ledger_fates, desk_plans):
        monkeypatch.setattr(module, "admin_client", lambda properties: None)
    routes = Routes({HANDLER: Handler(HANDLER, ("orders",), "q", 1, 0.0)})
    app: Celery = SimpleNamespace(tasks={})  # type: ignore[assignment]
    return DeadLetterService(app, Settings(FileSettings(), EnvironmentSettings(), "", {}), routes, database)


class Person:
    """Somebody signed in, in a browser of their own."""

    def __init__(self, console: Console, name: str, role: Role) -> None:
        self._browser = TestClient(build_application(console), base_url="https://localhost", follow_redirects=False)
        cookie = session(console, name, role)
        self._browser.cookies.set(SESSION_COOKIE, cookie)
        who = console.sessions.who(cookie)
        assert who is not None
        self.token, self.cookie = who.token, f"{SESSION_COOKIE}={cookie}"

    def get(self, path: str) -> Any:
        return self._browser.get(path)

    def post(self, path: str, **fields: Any) -> Any:
        return self._browser.post(path, data={"token": self.token, **fields})

    def form(self, page: str, action: str) -> dict[str, str]:
        """The hidden fields of a page's own form, as a browser would send them."""
        # What was done by the form before may have the same act as its opposite.
        own = re.sub(r'<div class="say is-good done".*?</div></div>', "", self.get(page).text, flags=re.S)
        (found,) = re.findall(rf'<form[^>]*action="{action}".*?</form>', own, re.S)
        return dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', found))


def open_letters(database: Database, count: int, handler: str = HANDLER, **other: Any) -> list[int]:
    """Open letters of a handler."""
    with database.writing() as connection:
        mine = kind(connection, handler, **other)
        return [letter(connection, mine, offset) for offset in range(count)]
