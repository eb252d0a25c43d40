"""A list of letters looks well where nobody records any more: pages say that it is not all, and who records."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from bridge.console.console import Console
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.recorder_presence import name_recorder_members
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from tests.desk.letters import letter
from tests.processes import eventually
from tests.servers.redis import RedisServer

PAGES = ("/letters", "/groups", "/groups/1")
SAID = "No recorder of dead letters runs, since "


@pytest.fixture
def console(desk: DeadLetterService, redis_url: str) -> Console:
    return Console(replace(desk, settings=replace(desk.settings, broker_url=redis_url)), "shop @ localhost:1")


@pytest.fixture
def announce(console: Console) -> Iterator[Callable[[float], None]]:
    """Says for so many seconds that a recorder lives."""
    ledger = Ledger.from_settings(console.desk.settings)
    assert ledger is not None
    with closing(ledger):
        yield lambda seconds: GroupMembers(ledger, "recorders").announce(
            "host-1:42", {}, [name_recorder_members(console.desk.settings)], seconds
        )


def text(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page).split())


def test_lists_say_that_no_recorder_lives_and_the_overview_that_none_runs(browser, console, record, announce):
    record(letter(1))
    announce(0.05)
    eventually(lambda: console.recorders().missed, 20)
    viewer = browser()
    for path in PAGES:
        assert SAID in text(viewer.get(path).text), path
    assert re.search("Recorders of dead letters 0 .* none running", text(viewer.get("/").text))


def test_while_one_lives_lists_say_nothing_and_the_overview_lists_it(browser, record, announce):
    record(letter(1))
    announce(60)
    viewer = browser()
    for path in PAGES:
        assert "recorder" not in text(viewer.get(path).text).lower(), path
    assert re.search("Recorders of dead letters 1 .* host-1:42", text(viewer.get("/").text))


def test_where_none_ever_was_none_is_missed(browser, record):
    record(letter(1))
    viewer = browser()
    for path in (*PAGES, "/"):
        page = text(viewer.get(path).text)
        assert SAID not in page, path
        assert "Recorders of dead letters" not in page, path


def test_no_page_waits_for_a_redis_that_is_silent(desk: DeadLetterService, own_redis: RedisServer, record):
    record(letter(1))
    console = Console(replace(desk, settings=replace(desk.settings, broker_url=own_redis.url)), "shop @ localhost:1")
    own_redis.freeze()
    began = time.monotonic()
    for _ in range(5):
        assert console.recorders().said() == ""
    assert time.monotonic() - began < 1.0
    own_redis.thaw()
    eventually(lambda: console.recorders().living is not None, 30)
