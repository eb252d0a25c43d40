"""However many wait for servers that are silent, whoever asks for what needs none of them is answered."""

import asyncio
import threading

import httpx2
import pytest

from bridge.web import looking
from bridge.web.app import application
from bridge.web.console import Console
from bridge.web.cookies import COOKIE
from bridge.web.roles import Role
from tests.web.site import session

#: More than all threads that there are.
MANY = 150


@pytest.fixture
def silent(monkeypatch):
    """Kafka, the ledger, and whoever says how the group stands: none answers before this is set."""
    answers = threading.Event()

    def waits(*_, **__):
        answers.wait(60)
        raise RuntimeError("silent")

    for name in ("bridge.web.found.look", "bridge.web.pages.find.look", "bridge.web.console.asked_status"):
        monkeypatch.setattr(name, waits)
    monkeypatch.setattr(looking, "WITHIN", 60.0)
    monkeypatch.setattr(looking.Looking, "latest", waits)
    yield answers
    answers.set()


@pytest.mark.parametrize("address", ["/find?q=orders-0-1", "/api/v1/find?q=orders-0-1", "/", "/api/v1/status"])
def test_where_servers_are_silent_and_many_wait_for_them_letters_are_listed_all_the_same(desk, silent, address):
    console = Console(desk, "shop @ localhost:1")
    said = {
        "cookie": f"{COOKIE}={session(console, 'ann', Role.VIEWER)}",
        "authorization": f"Bearer {desk.tokens.make('nightly', Role.VIEWER, 'ann')[1]}",
    }
    assert asyncio.run(_asked(console, silent, address, said)) == ([200, 200, 200], 0)


async def _asked(console, silent, address, said):
    """What is answered meanwhile, and how many of the others were by then."""
    transport = httpx2.ASGITransport(application(console), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="https://localhost", headers=said) as client:
        others = [asyncio.create_task(client.get(address)) for _ in range(MANY)]
        # Each has gone as far as it comes.
        for _ in range(50):
            await asyncio.sleep(0)
        try:
            asked = ("/letters", "/api/v1/letters", "/healthz")
            found = [(await asyncio.wait_for(client.get(each), 30)).status_code for each in asked]
            return found, sum(each.done() for each in others)
        finally:
            silent.set()
            await asyncio.gather(*others, return_exceptions=True)
