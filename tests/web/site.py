"""A console on a database of its own, and browsers that ask it."""

import re
from functools import cache
from typing import Any

from starlette.testclient import TestClient

from bridge.console.asgi_app import build_application
from bridge.console.auth import browser_session, passwords
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.database import Database
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.handler_routes import Routes
from bridge.settings import Settings
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings

PASSWORD = "correct horse battery"


@cache
def kept(password: str) -> str:
    """The hash of a password; made once, since making it takes its time."""
    return passwords.hash_password("", password)


def session(console: Console, name: str, role: Role) -> str:
    """The cookie of somebody who signs in; added, where there is none yet of that name."""
    users = console.desk.users
    if users.secret(name) is None:
        users.add(name, role, kept(PASSWORD), "the test")
    assert {each.name: each.role for each in users.all()}[name] == str(role), "somebody of this name has another role"
    secret = users.secret(name)
    cookie = console.sessions.begin(secret) if secret else None
    assert cookie is not None
    return cookie


class Site:
    """One console.

    Parameters:
        environment: what is set besides the database's address.
    """

    def __init__(self, url: str, app: Any = None, **environment: str) -> None:
        self.database = Database(url)
        self.database.migrate()
        said = EnvironmentSettings.model_validate({"DEADLETTERS_DATABASE_URL": url, **environment})
        settings = Settings(FileSettings(), said, "memory://", {"bootstrap.servers": "localhost:1"})
        self.console = Console(
            DeadLetterService(app, settings, Routes({}), self.database), "payments @ kafka-eu-1:9092"
        )
        self.app = build_application(self.console)

    def browser(self, address: str = "https://localhost", sent_from: str = "127.0.0.1") -> TestClient:
        """One without cookies, that goes nowhere by itself; what raises in the console is answered as in life."""
        client = (sent_from, 50_000)
        return TestClient(
            self.app, base_url=address, client=client, follow_redirects=False, raise_server_exceptions=False
        )

    def user(self, name: str, role: Role) -> None:
        """Add somebody, whose password is `PASSWORD`."""
        self.console.desk.users.add(name, role, kept(PASSWORD), "the test")

    def signed_in(self, role: Role) -> TestClient:
        """A browser in which somebody of this role is signed in; added, where there is none yet."""
        cookie = session(self.console, f"{role}-in-person", role)
        browser = self.browser()
        browser.cookies.set(browser_session.SESSION_COOKIE, cookie)
        return browser

    def close(self) -> None:
        """Give the database back."""
        self.database.close()


def token(browser: TestClient, page: str = "/groups") -> str:
    """What forms of a page bring along."""
    found = re.search(r'name="token" value="([0-9a-f]+)"', browser.get(page).text)
    assert found is not None
    return found.group(1)


def sign_in(browser: TestClient, name: str, password: str = PASSWORD, **form: str) -> Any:
    """What the sign-in page answers."""
    return browser.post("/sign-in", data={"name": name, "password": password, **form})
