"""What is promised of the pages of records in a browser: they show what Kafka has, fit each screen, need no mouse."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from bridge.deadletters.accounts.user_account import Role
from tests.browser.conftest import Opens
from tests.browser.test_every_page import CUT, violations
from tests.browser.window import until
from tests.browser.world import World, world
from tests.desk_of_stack import record
from tests.processes import Served, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.window import Window

WIDTHS: Final = (360, 768, 1024, 1440)
GOOD: Final = {"order": "O-1", "total": "12.50", "customer": {"name": "Zoë", "country": "CH"}}
#: A long value, and what the handler dies of.
BAD: Final = {"order": "O-2", "total": "12,50", "customer": {"name": "x" * 400, "country": "CH"}, "lines": [*range(60)]}


@pytest.fixture(scope="module")
def till(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Served]]:
    """A shop in order by key, of which one key is held by a dead letter; and its console."""
    folder = tmp_path_factory.mktemp("till")
    with world(kafka, redis_shared, "till", folder, **ordered(folder)) as made:
        made.stack.bridge()
        made.stack.worker()
        headers = [("version", b"1"), ("x" * 120, b"y" * 300)]
        made.stack.produce("orders", GOOD, key=b"cust-90412", partition=0, headers=headers)
        eventually(lambda: len(made.stack.done("charge")) == 1, 40)
        made.stack.produce("orders", BAD, key=b"cust-90412", partition=0)
        for number in range(14):
            made.stack.produce("orders", {**GOOD, "order": f"O-{number + 3}"}, key=b"cust-90412", partition=0)
        record(made.stack, made.desk, "orders", 1)
        yield made, made.console()


def ordered(folder: Path) -> dict[str, str]:
    """The settings of an ordered shop, as a file of its own."""
    (folder / "till_settings.py").write_text(
        "from celeryconfig import *  # noqa: F403\n"
        'kafka_topics = {"till.orders": {"commit": "completion", "order": "key", "after_dead": "hold"}}\n'
    )
    return {"CELERY_CONFIG_MODULE": "till_settings", "PYTHONPATH": str(folder)}


@pytest.fixture
def window(till: tuple[World, Served], opens: Opens):
    """Opens windows on that console."""
    return lambda **looks: opens(*till, Role.OPERATOR, **looks)


RECORD: Final = "/topics/till.orders/records/0/1"
PAGES: Final = (RECORD, f"{RECORD}/good", "/find?q=till.orders-0-1", "/topics/till.orders", "/letters/1/good")


def load(opened: "Window", path: str) -> "Page":
    """A page with the parts that come by themselves."""
    page = opened.page(path)
    if path.startswith("/find"):
        page.get_by_role("heading", name="Key and headers").wait_for()
    if path == "/topics/till.orders":
        page.get_by_text("Who waits behind whom").wait_for()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_records_is_accessible_and_fits_each_screen(window, path: str, scheme: str):
    opened = window(color_scheme=scheme)
    page = load(opened, path)
    found = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found[width] = [*violations(page), *page.evaluate(CUT), *([f"{wide} px too wide"] if wide > 0 else [])]
    assert {width: each for width, each in found.items() if each} == {}
    opened.check()


def test_from_a_topic_to_what_blocks_it_and_from_there_to_the_difference_takes_the_keyboard_alone(window):
    page = load(window(), "/topics/till.orders")
    blocking = page.locator("[aria-labelledby=h-blocking]")
    assert "replay or discard it" in blocking.inner_text()
    assert "14" in blocking.inner_text()
    blocking.get_by_role("link", name="till.orders-0-1").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="till.orders-0-1").wait_for()
    page.get_by_role("link", name="of the same key").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="till.orders-0-1 beside the last good record of its key").wait_for()
    assert '"total": "12,50"' in page.locator(".diff").first.inner_text()
    assert '"total": "12.50"' in page.locator(".diff").first.inner_text()


def test_a_record_of_a_topic_is_typed_as_partition_and_offset_and_shown_on_find(window):
    page = load(window(), "/topics/till.orders")
    page.get_by_label("Look at a record").fill("0-0")
    page.keyboard.press("Enter")
    page.wait_for_url("**/find?**")
    page.get_by_role("heading", name="Key and headers").wait_for()
    until(page, lambda: "Zoë" in page.locator("main").inner_text())
    page.get_by_role("button", name="Fold all", exact=True).click()
    until(page, lambda: "2 members" in page.locator(".json").inner_text())
    page.get_by_role("link", name="Hex").click()
    page.wait_for_url("**/topics/till.orders/records/0/0?**")
