"""However many wait for servers that are silent, whoever asks for what needs none of them is answered."""

import asyncio
import threading

import httpx2
import pytest

from bridge.console import thread_pools
from bridge.console.asgi_app import build_application
from bridge.console.auth.browser_session import SESSION_COOKIE
from bridge.console.console import Console
from bridge.console.status_cache import BackgroundCache
from bridge.deadletters.accounts.user_account import Role
from tests.web.site import session

#: More than all threads that there are.
MANY = 150


class Answers(threading.Event):
    """Set: the servers answer; `asked` are the threads that have asked them."""

    def __init__(self):
        super().__init__()
        self.asked = []


@pytest.fixture
def silent(monkeypatch):
    """Kafka, the ledger, and whoever says how the group stands: none answers before this is set."""
    answers = Answers()

    def waits(*_, **__):
        answers.asked.append(threading.get_ident())
        answers.wait(60)
        raise RuntimeError("silent")

    for name in (
        "bridge.console.record_lookup.look_up",
        "bridge.console.pages.find_page.look_up",
        "bridge.console.console.read_group_status",
    ):
        monkeypatch.setattr(name, waits)
    read = BackgroundCache.read

    def read_or_wait(cache, *within):
        return waits() if cache.subject == "the status of the group" else read(cache, *within)

    monkeypatch.setattr(BackgroundCache, "read", read_or_wait)
    yield answers
    answers.set()


@pytest.mark.parametrize("address", ["/find?q=orders-0-1", "/api/v1/find?q=orders-0-1", "/", "/api/v1/status"])
def test_where_servers_are_silent_and_many_wait_for_them_letters_are_listed_all_the_same(desk, silent, address):
    console = Console(desk, "shop @ localhost:1")
    said = {
        "cookie": f"{SESSION_COOKIE}={session(console, 'ann', Role.VIEWER)}",
        "authorization": f"Bearer {desk.tokens.make('nightly', Role.VIEWER, 'ann')[1]}",
    }
    assert asyncio.run(_asked(console, silent, address, said)) == ([200, 200, 200], 0)


async def _asked(console, silent, address, said):
    """What is answered meanwhile, and how many of the others were by then."""
    transport = httpx2.ASGITransport(build_application(console), raise_app_exceptions=False)
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


@pytest.mark.parametrize("address", ["/find?q=orders-0-1", "/api/v1/find?q=orders-0-1"])
def test_an_answer_that_takes_too_long_is_given_up_and_keeps_its_thread(desk, silent, monkeypatch, address):
    monkeypatch.setattr("bridge.console.thread_pools.ANSWER_SECONDS", 0.2)
    console = Console(desk, "shop @ localhost:1")
    said = {
        "cookie": f"{SESSION_COOKIE}={session(console, 'ann', Role.VIEWER)}",
        "authorization": f"Bearer {desk.tokens.make('nightly', Role.VIEWER, 'ann')[1]}",
    }
    statuses, text, waiting = asyncio.run(_given_up(console, silent, address, said))
    assert set(statuses) == {503}
    assert "may still be carried out" in text
    assert 0 < waiting <= thread_pools.POOL_THREADS


async def _given_up(console, silent, address, said):
    transport = httpx2.ASGITransport(build_application(console), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="https://localhost", headers=said) as client:
        try:
            answers = await asyncio.gather(*(client.get(address) for _ in range(3 * thread_pools.POOL_THREADS)))
            return [each.status_code for each in answers], answers[0].text, len(silent.asked)
        finally:
            silent.set()
