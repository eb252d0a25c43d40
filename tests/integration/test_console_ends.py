"""A console ends within seconds of a signal, whoever looks at it."""

import signal
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from bridge.console.auth.browser_session import LOCAL_SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from tests.desk_of_stack import desk
from tests.processes import Served, Stack, eventually
from tests.servers.process import free_port
from tests.web.site import session

#: Processes that begin as users' do.
pytestmark = pytest.mark.usefixtures("from_nothing")


def console(stack: Stack) -> tuple[Served, str]:
    """One that answers, and the cookie of somebody who is signed in to it."""
    stack.environ["BRIDGE_HTTP_PORT"] = "0"
    with desk(stack) as here:
        cookie = f"{LOCAL_SESSION_COOKIE}={session(Console(here, ''), 'ann', Role.VIEWER)}"
    port = free_port()
    command = (sys.executable, "-m", "bridge", "deadletters", "serve", "--port", str(port))
    served: Served = stack.start("console", *command, kind=Served)
    served.port = port
    eventually(lambda: served.get("/healthz")[0] == 200 or served.exit_code is not None, 60, "the console answers")
    return served, cookie


@pytest.fixture
def streams() -> Iterator[list[HTTPConnection]]:
    """What is open still when the test ends."""
    found: list[HTTPConnection] = []
    yield found
    for each in found:
        each.close()


def look(served: Served, cookie: str) -> HTTPConnection:
    """A page's stream, that has said something and stays open."""
    opened = HTTPConnection("localhost", served.port, timeout=30)
    opened.request("GET", "/events?of=overview", headers={"cookie": cookie})
    answer = opened.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.readline().startswith(b"data: ")
    return opened


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_console_at_whose_pages_people_look_ends_within_seconds_of_a_signal(
    stack: Stack, streams: list[HTTPConnection], number: signal.Signals
):
    served, cookie = console(stack)
    streams += [look(served, cookie) for _ in range(3)]
    began = time.monotonic()
    served.signal(number)
    assert served.ends(30) in (0, -number, 128 + number), served.text
    assert time.monotonic() - began < 10
    assert "Traceback" not in served.text
