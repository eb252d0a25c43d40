"""Browsers, and consoles that they open: pages of a desk in the night of an incident."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.deadletters.accounts.user_account import Role
from tests.browser import chromium as browsers
from tests.browser import incident
from tests.browser.incident import Night
from tests.browser.world import World, world
from tests.processes import Served, pytest_runtest_makereport
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.window import Window

__all__ = ["pytest_runtest_makereport"]

#: Opens a window in which somebody of a role is signed in, or nobody (None).
Opens = Callable[..., "Window"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a process waits for all of a shop's servers and processes, on a machine that may be shared."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """A Chromium; it ends with a file's tests: meanwhile no other test of the process can run a loop of its own."""
    need(browsers.missing())
    with browsers.chromium() as found:
        yield found


@pytest.fixture(scope="session")
def whole_night(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Night]]:
    """The night's shop, and where things lie in its desk."""
    need(browsers.missing())
    with world(kafka, redis_shared, "shop", tmp_path_factory.mktemp("night")) as made:
        night = incident.fill(made)
        made.stack.bridge(KAFKA_HANDLERS_VERSION="1.5.1")
        made.stack.worker(KAFKA_HANDLERS_VERSION="1.5.1")
        yield made, night


@pytest.fixture(scope="session")
def night(whole_night: tuple[World, Night]) -> World:
    """A shop whose bridge and worker run, and whose desk is full; only read it. No recorder runs."""
    return whole_night[0]


@pytest.fixture(scope="session")
def lies(whole_night: tuple[World, Night]) -> Night:
    """Where things lie in the night's desk."""
    return whole_night[1]


@pytest.fixture(scope="session")
def night_console(night: World) -> Served:
    """Its console."""
    return night.console()


@pytest.fixture
def shop(kafka: KafkaServer, redis_shared: RedisServer, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    """A shop of this test alone, of which nothing runs yet."""
    need(browsers.missing())
    with world(kafka, redis_shared, topic_prefix, tmp_path) as made:
        yield made


@pytest.fixture
def opens(chromium: "Browser") -> Iterator[Opens]:
    """Opens windows on a console of a world; what goes wrong in one fails the test."""
    from tests.browser.window import Window

    opened: list[Window] = []

    def open_one(there: World, console: Served, role: Role | None = Role.OPERATOR, **looks: Any) -> Window:
        window = Window(chromium, f"http://localhost:{console.port}", **looks)
        opened.append(window)
        if role is not None:
            name, value = there.cookie(role)
            window.context.add_cookies([{"name": name, "value": value, "url": window.address}])
        return window

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def window(night: World, night_console: Served, opens: Opens) -> Callable[..., "Window"]:
    """Opens windows on the console of the night: `window(Role.VIEWER, color_scheme="dark")`."""
    return lambda role=Role.OPERATOR, **looks: opens(night, night_console, role, **looks)
