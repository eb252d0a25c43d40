"""A night at the console, on real servers: what a page says was done was done, once, and nothing besides."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.model.bulk_plan import PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterLine
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.operator_actions.topic_halt import read_halts
from tests.browser import chromium as browsers
from tests.browser.world import World, world
from tests.desk.recorders import recorder
from tests.processes import Served, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.window import Window

#: The first test waits until Kafka, PostgreSQL and all processes of the shop are there.
pytestmark = pytest.mark.timeout(300)

CHARGE = "orders.handlers.charge"
ORDERS = "/letters"


class Night:
    """A shop all of whose processes run."""

    def __init__(self, shop: World) -> None:
        self.shop, self.stack, self.desk = shop, shop.stack, shop.desk
        # All at once: each takes its seconds to start.
        bridge = self.stack.bridge(wait=False)
        self.worker = self.stack.worker(wait=False, KAFKA_HANDLERS_VERSION="1.5.1")
        record = recorder(self.stack, wait=False)
        self.console: Served = shop.console()
        eventually(lambda: bridge.ready() and record.ready(), 120, "bridge and recorder are ready")

    def die(self, count: int, total: str = "12,50", currency: str = "EUR") -> tuple[str, list[str]]:
        """So many orders that the handler dies of, once they are recorded: their key, and where they lie."""
        key = f"cust-{uuid4().hex[:8]}"
        orders = [{"order": f"A-{n}", "total": total, "currency": currency} for n in range(count)]
        places = self.stack.produce("orders", *orders, key=key.encode())
        eventually(lambda: len(self.letters(key)) == count, 40, f"{count} letters of {key}")
        return key, places

    def letters(self, key: str) -> list[LetterLine]:
        """What the database has of a key."""
        return list(self.desk.letters.page(LetterFilter(key=key.encode()), 100).letters)

    def statuses(self, key: str) -> set[str]:
        return {each.status for each in self.letters(key)}

    def sent_back(self, key: str) -> int:
        """How many records of a key lie in the replay topic."""
        return sum(record.key() == key.encode() for record in self.stack.records("orders.replay"))

    def charged(self, places: list[str]) -> list[str]:
        """Which of these orders were charged, once for each time."""
        return sorted(place for place in self.stack.done("charge") if place in places)

    def fate(self, place: str) -> str:
        """What the ledger has of an order, for the handler that charges."""
        command = (sys.executable, "-m", "bridge", "find", place, "--json")
        process = self.stack.start("find", *command)
        assert process.ends() == 0, process.text
        said = json.loads(process.text[process.text.index("{") :])
        return str(next(each["fate"] for each in said["deliveries"] if each["handler"] == CHARGE))

    def acts(self, plan: int) -> list[str]:
        """What was done with a plan, by the trail."""
        return [act.what for act in self.desk.progress.read_progress(plan).trail]

    @contextmanager
    def mended(self) -> Iterator[None]:
        """While the code takes a comma."""
        self.shop.mend()
        yield
        Path(self.stack.environ["TEST_RUNS"] + ".mended").unlink()


@pytest.fixture(scope="module")
def night(
    kafka: KafkaServer, redis_shared: RedisServer, postgres_server: PostgresServer, tmp_path_factory: Any
) -> Iterator[Night]:
    """One for all tests of this file: each has orders of its own key."""
    need(browsers.missing())
    url, folder = postgres_server.new_database(), tmp_path_factory.mktemp("scenes")
    with world(kafka, redis_shared, f"s{uuid4().hex[:8]}", folder, DEADLETTERS_DATABASE_URL=url) as shop:
        yield Night(shop)


@pytest.fixture
def window(night: Night, opens: Callable[..., "Window"]) -> Callable[..., "Window"]:
    """Opens a window on its console in which somebody of a role is signed in."""
    return lambda role=Role.OPERATOR, **looks: opens(night.shop, night.console, role, **looks)


def number(page: "Page") -> int:
    """Of the plan that a page shows."""
    page.wait_for_url(re.compile(r"/plans/\d+"))
    found = re.search(r"/plans/(\d+)", page.url)
    assert found
    return int(found.group(1))


def plan_all(page: "Page", key: str, button: str = "Plan a replay…") -> int:
    """Choose all letters of a key, and go on to their plan."""
    page.goto(f"{ORDERS}?key={key}")
    page.locator("#every").check()
    page.get_by_role("button", name=button).click()
    return number(page)


def ends(night: Night, plan: int, within: float = 60) -> PlanState:
    eventually(lambda: night.desk.plans.one(plan).is_over, within, f"plan {plan} is over")
    return night.desk.plans.one(plan).state


def overview(page: "Page", link: str) -> Any:
    """A link of the overview, once the group has answered how it stands."""

    def loaded() -> bool:
        page.goto("/")
        return page.locator(link).count() > 0

    eventually(loaded, 60, link)
    return page.locator(link).first


def test_a_record_is_found_its_letter_is_read_mended_and_seen_resolved(night, window):
    key, (place,) = night.die(1, "12.50", "XXX")
    page = window().page("/")
    page.locator("#find").fill(place)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"{place} is dead for 1 of 2 handlers").wait_for()
    page.locator("main a[href^='/letters/']").first.click()
    page.get_by_text("the bank knows no currency XXX").first.wait_for()
    page.get_by_role("link", name="Edit and replay…").click()
    value = page.get_by_label("JSON, indented here")
    value.fill('{"order": "A-0"}')
    page.get_by_text("Its handler would refuse it.").wait_for()
    value.fill('{"order": "A-0", "total": "12.50", "currency": "EUR"}')
    page.get_by_text("It validates.").wait_for()
    page.get_by_role("button", name="Replay 1 letter with 1 change").click()
    plan = number(page)
    assert ends(night, plan) is PlanState.DONE
    page.locator("#p-sums").get_by_text("1", exact=True).first.wait_for()
    (letter,) = night.letters(key)
    assert letter.status == LetterStatus.RESOLVED
    page.goto(f"/letters/{letter.id}")
    assert page.locator("main .st.is-good", has_text="resolved").count() >= 1
    assert (night.charged([place]), night.sent_back(key), night.fate(place)) == ([place], 1, "done")
    assert night.stack.runs("charge", place)[-1].value == "A-0"


def test_a_canary_over_letters_that_fail_still_stops_by_itself_and_leaves_the_rest_untouched(night, window):
    key, places = night.die(30)
    page = window().page()
    plan = plan_all(page, key)
    assert page.get_by_label("Canary").is_checked()
    page.get_by_label("Why, for the audit log").fill("perhaps it is over")
    page.get_by_role("button", name="Replay 30 letters").click()
    page.locator("#p-state").get_by_text("stopped by its canary").wait_for(timeout=60_000)
    assert night.desk.plans.one(plan).outcomes == {"dead": 1, "waiting": 29}
    assert night.sent_back(key) == 1
    eventually(lambda: night.statuses(key) == {LetterStatus.OPEN}, 30)
    assert sorted(each.failures for each in night.letters(key)) == [1] * 29 + [2]
    assert night.charged(places) == []


def test_all_that_a_filter_finds_goes_back_while_its_page_shows_how_far_it_is(night, window):
    key, places = night.die(40)
    page = window().page()
    plan = plan_all(page, key)
    page.get_by_label("All at once").check()
    page.get_by_label("At most per second").fill("8")
    page.get_by_label("Why, for the audit log").fill("1.5.2 takes a comma")
    with night.mended():
        page.get_by_role("button", name="Replay 40 letters").click()
        page.evaluate("window.same = true")
        done = page.locator("#p-sums dd").first
        seen = {done.inner_text().split()[0]}
        while "40" not in seen:
            page.wait_for_timeout(200)
            seen.add(done.inner_text().split()[0])
        assert ends(night, plan) is PlanState.DONE
    assert page.evaluate("window.same")
    assert len(seen) > 2, "nothing was seen between the beginning and the end"
    assert night.charged(places) == sorted(places)
    assert night.statuses(key) == {LetterStatus.RESOLVED}
    assert night.fate(places[7]) == "done"


def test_of_two_operators_the_slower_one_is_told_who_was_quicker_and_keeps_what_was_typed(night, window):
    key, _ = night.die(2)
    slower, quicker = window(), window(Role.ADMIN)
    slower.bears("409")
    hers, his = slower.page(), quicker.page()
    plan = plan_all(hers, key)
    his.goto(f"/plans/{plan}")
    hers.get_by_label("Why, for the audit log").fill("mail-2 is back")
    his.get_by_label("Why, for the audit log").fill("I wait for the bank")
    his.get_by_role("button", name="Throw the plan away").click()
    his.locator("#p-state").get_by_text("thrown away").wait_for()
    hers.get_by_role("button", name="Replay 2 letters").click()
    alert = hers.get_by_role("alert").inner_text()
    assert re.search(r"Somebody was quicker\..*stopped by ada: I wait for the bank, by ada at .*\d\d:\d\d", alert, re.S)
    assert "mail-2 is back" in alert
    assert (night.desk.plans.one(plan).state, night.sent_back(key)) == (PlanState.STOPPED, 0)


def test_a_discard_waits_ten_seconds_in_which_it_is_stopped_and_is_done_when_it_is_gone_on_with(night, window):
    key, places = night.die(2)
    page = window().page()
    plan = plan_all(page, key, "Plan a discard…")
    page.get_by_label("Why, for the audit log").fill("made by a test of the till")
    page.get_by_label("Type 2 to discard them").fill("2")
    page.get_by_role("button", name="Discard 2 letters").click()
    page.get_by_text("It begins 10 s after it was applied.").wait_for()
    page.get_by_role("button", name=f"Stop plan {plan}").click()
    page.locator("#p-state").get_by_text("thrown away").or_(page.locator("#p-state").get_by_text("stopped")).wait_for()
    assert night.statuses(key) == {LetterStatus.OPEN}
    page.get_by_role("button", name="Resume with 2 letters").click()
    assert ends(night, plan) is PlanState.DONE
    assert night.statuses(key) == {LetterStatus.DISCARDED}
    assert {night.fate(place) for place in places} == {"discarded"}
    assert night.acts(plan) == ["discard", "apply", "stop", "apply"]


def test_a_topic_is_halted_and_resumed_from_the_overview(night, window):
    topic = night.stack.topic("refunds")
    page = window().page()
    overview(page, f"a[href='/topics/{topic}/halt']").click()
    page.get_by_label("Why, seen by everybody").fill("the bank asks us to wait")
    page.get_by_role("button", name=f"Halt {topic}").click()
    page.get_by_role("heading", name=f"{topic} is halted").wait_for()
    assert read_halts(night.desk.settings)[topic]["why"] == "the bank asks us to wait"
    (place,) = night.stack.produce("refunds", {"order": "R-1", "total": "1"})
    resume = overview(page, f"a[href='/topics/{topic}/resume']")
    assert page.get_by_text("the bank asks us to wait").locator("visible=true").count() >= 1
    assert night.stack.done("pay_back") == []
    resume.click()
    page.get_by_label("Why, seen by everybody").fill("they are done")
    page.get_by_role("button", name=f"Resume {topic}").click()
    page.get_by_role("heading", name=f"{topic} is not halted").wait_for()
    eventually(lambda: night.stack.done("pay_back") == [place], 30, "it goes on")
    assert read_halts(night.desk.settings) == {}


def test_a_double_click_going_back_and_loading_again_repeat_nothing(night, window):
    key, places = night.die(2)
    (first, _) = night.letters(key)
    page = window().page(f"/letters/{first.id}")
    page.get_by_label("Note").last.fill("its vendor knows")
    page.get_by_role("button", name="Add the note").dblclick()
    page.wait_for_url("**#notes")
    assert [act.said for act in night.desk.letters.one(first.id).trail] == ["its vendor knows"]
    before = len(night.desk.plans.latest())
    page.goto(f"{ORDERS}?key={key}")
    page.locator("#every").check()
    page.get_by_role("button", name="Plan a replay…").dblclick()
    plan = number(page)
    with night.mended():
        page.get_by_role("button", name="Replay 2 letters").dblclick()
        assert ends(night, plan) is PlanState.DONE
        page.wait_for_load_state()
        page.reload()
        page.go_back()
        page.go_forward()
        page.reload()
    assert len(night.desk.plans.latest()) == before + 1
    assert night.acts(plan) == ["replay", "apply"]
    assert (night.charged(places), night.sent_back(key)) == (sorted(places), 2)


def test_in_two_tabs_a_plan_is_applied_once_and_the_second_tab_shows_how_far_it_is(night, window):
    key, places = night.die(1)
    opened = window()
    one, other = opened.page(), opened.page()
    plan = plan_all(one, key)
    other.goto(f"/plans/{plan}")
    with night.mended():
        for tab in (one, other):
            tab.get_by_role("button", name="Replay 1 letter").click()
            tab.get_by_role("heading", name=f"Plan {plan}: replay 1 letter").wait_for()
        assert ends(night, plan) is PlanState.DONE
    assert night.acts(plan) == ["replay", "apply"]
    assert night.charged(places) == places


def test_a_group_that_is_fixed_in_a_version_goes_back_once_a_worker_of_it_comes_up(night, window):
    key, places = night.die(3)
    (letter, *_) = night.letters(key)
    page = window().page(f"/groups/{letter.group}")
    page.get_by_role("link", name="Mark as fixed…").click()
    page.get_by_label("Version, as workers report it").fill("1.6.0")
    page.get_by_role("button", name="Mark as fixed").click()
    page.get_by_text("Marked by ann").wait_for()
    assert night.sent_back(key) == 0
    with night.mended():
        night.worker.terminate()
        night.worker = night.stack.worker(KAFKA_HANDLERS_VERSION="1.6.0")
        eventually(lambda: night.statuses(key) == {LetterStatus.RESOLVED}, 90, "they went back by themselves")
    assert night.charged(places) == sorted(places)
    page.reload()
    assert page.get_by_text("fixed in 1.6.0").first.is_visible()
