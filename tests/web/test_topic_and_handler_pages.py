"""What is promised of the pages of one topic and of one handler: all that is known of it, and that they stay right."""

import re
import time
from dataclasses import replace
from html import unescape
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.console.narrowed_status import NarrowedStatusCache, ScopedView
from bridge.console.pages import handler_page, overview_page, page_charts, topic_page
from bridge.console.pages.chart_options import DEFAULT_OPTIONS
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import plan_item_rows
from bridge.deadletters.inspection.letter_statistics import LetterTotals
from bridge.deadletters.model.letter_scope import LetterScope
from bridge.errors import LedgerUnavailable, NotDecided
from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import DeliveryHistory
from bridge.ledger.duration_histogram import BUCKETS, count_by_bucket
from bridge.ledger.gauge_history import GaugeKey
from bridge.operator_actions import topic_halt as commands
from bridge.problems.problem import Problem
from tasks import Limit
from tests.desk.letters import HANDLER, letter
from tests.web import hostile_input
from tests.web.status_answer import BRIDGE, SHOWN, SINCE, WORKER, status

TOPIC, ONE = "/topics/orders", f"/handlers/{HANDLER}"


def words(page):
    """The text of a page, as somebody reads it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


@pytest.fixture
def page(console, browser):
    """Loads a page over what `bridge status` is to answer."""

    def loaded(path, role=Role.OPERATOR, **other):
        console.status_cache = make_status_cache(lambda: status(**other))
        answer = browser(role).get(path)
        assert answer.status_code == 200
        hostile_input.check(answer.text.replace("<text ", "<b "))
        return answer.text

    return loaded


def test_a_topic_shows_its_partitions_what_waits_beside_it_and_its_handlers(page):
    found = page(TOPIC)
    text = words(found)
    assert "orders: runs, consumer lag 214 records" in text
    assert "0 100 307 207 host:1 runs" in text
    assert "1 100 307 7 host:1 runs" in text
    assert f"orders.retry.5m 5 min 22 {SHOWN} needed" in text
    assert text.index("orders.replay") < text.index("orders.retry.5m")
    assert f"{HANDLER} 2 96 1 s 0 runs" in text
    assert 'aria-label="Handled by the minute: 213 in 60 minutes' in found
    assert "orders.dlq" in text
    assert '<a class="btn harm" href="/topics/orders/halt">' in found


def kept(monkeypatch, took, level):
    """What Redis keeps of the handler: how long its runs took in each minute or hour, and a level."""

    def read_history(_, whose, unit, count, now, durations=True):
        return DeliveryHistory({"handled": (1,) * count}, (*((0,) * BUCKETS,) * (count - len(took)), *took))

    monkeypatch.setattr(page_charts, "read_history", read_history)
    monkeypatch.setattr(
        page_charts, "read_gauges", lambda _, keys, __, count, ___: dict.fromkeys(keys, (level,) * count)
    )
    monkeypatch.setattr(Ledger, "once", lambda *_: BytesIO())


def test_a_handler_says_how_long_its_runs_take_in_the_chosen_range_and_form(page, monkeypatch):
    runs = count_by_bucket([0.02] * 99 + [4.0])
    kept(monkeypatch, [tuple(runs.get(bucket, 0) for bucket in range(BUCKETS))], 12)
    found = page(f"{ONE}?charts=7d.took-24h")
    text = words(found)
    assert "all attempts, last day, UTC" in text
    assert "100 runs: half took about 17 ms or less, 95 % 20 ms, 99 % 20 ms." in text
    assert 'aria-label="Backlog, the highest of each minute: at most 12, 12 at last"' in found
    assert "Last 7 days by the hour, UTC" in text
    assert "15 to 20 ms: 99 runs, 99 %" in found
    table = words(page(f"{ONE}?charts=table"))
    assert "Took Runs Share 15 to 20 ms 99 99 % 3 to 5 s 1 1 %" in table
    assert "Time Handled Attempts failed Dead letters Replayed Backlog 02:59 UTC 3 0 0 0 12" in table
    assert "Consumer lag 02:59 UTC 3 0 0 0 12" in words(page(f"{TOPIC}?charts=table"))


@pytest.mark.parametrize(("topics", "seen"), [(("orders",), True), (("orders", "salaries"), False)])
def test_who_does_not_see_all_topics_of_a_handler_does_not_see_its_backlog(console, monkeypatch, topics, seen):
    asked = []
    monkeypatch.setattr(handler_page, "build_page_charts", lambda *_, gauge, **__: asked.append(gauge))
    handler = replace(console.desk.routes.handlers[HANDLER], topics=topics)
    view = ScopedView(LetterScope(("orders",), ("shop",)), "shop", console.desk.routes)
    console.status_cache = NarrowedStatusCache(console.status_cache, view)
    found: Any = SimpleNamespace(status={})
    handler_page._build_charts(console, found, handler, DEFAULT_OPTIONS)
    assert asked == [GaugeKey("backlog", HANDLER) if seen else None]


def test_of_a_redis_that_does_not_respond_a_handler_shows_that_it_is_not_known(page, monkeypatch):
    def refuse(*_, **__):
        raise LedgerUnavailable("Redis does not answer.")

    monkeypatch.setattr(Ledger, "once", lambda *_: BytesIO())
    monkeypatch.setattr(page_charts, "read_history", refuse)
    assert "Not known: Redis does not respond" in words(page(ONE))
    monkeypatch.setattr(Ledger, "once", refuse)
    assert "Not known: Redis does not respond" in words(page(ONE, counts=None)), "it is not asked again"


def test_a_partition_says_why_it_is_paused_and_that_nobody_has_it(page):
    paused = {
        **BRIDGE,
        "assigned": ["orders-1"],
        "paused": {"orders-1": "queue q"},
        "paused_since": {"orders-1": SINCE},
    }
    text = words(page(TOPIC, bridges={"host:1": paused}))
    assert f"1 100 307 7 host:1 paused: queue q since {SHOWN} UTC" in text
    assert "0 100 307 207 \u2013 no bridge has it" in text


def test_a_topic_that_is_halted_says_so_and_offers_to_resume_it_to_who_may(page):
    halted = {"orders": {"since": SINCE, "by": "ann", "why": "the period is closed"}}
    problem = Problem("Topic 'orders' is halted, by ann.", "halted", "Topic 'orders' is halted", topic="orders")
    found = page(TOPIC, halted=halted, problems=[problem, Problem("x", "redis", "Redis is full")])
    assert "orders: halted" in words(found)
    assert "the period is closed" in found
    assert "Redis is full" not in found
    assert '<a class="btn" href="/topics/orders/resume">' in found
    assert "/resume" not in page(TOPIC, Role.VIEWER, halted=halted)


def test_topic_and_handler_show_the_cause_with_what_follows_from_it_and_no_link_to_themselves(page):
    fails = Problem("Every attempt of it fails.", "failing", "Every attempt fails", handler=HANDLER)
    dying = Problem("The topic is paused.", "dying", "Topic 'orders' is paused", topic="orders")
    other = Problem("x", "failing", "Another fails", handler="other.handler")
    for path, address in ((ONE, TOPIC), (TOPIC, ONE)):
        found = page(path, problems=[dying, fails, other])
        notice = found[found.index('<div class="say is-bad">') : found.index("</details>")]
        assert "Details and 1 consequence" in notice
        assert "Another fails" not in found
        shown = notice[: notice.index("<details")]
        assert f'href="{address}"' in shown
        assert f'href="{path}"' not in shown


def test_a_topic_has_the_problems_of_its_handlers_in_its_heading_and_above_what_holds_it_back(page):
    text = words(page(TOPIC, problems=[Problem("It fails.", "failing", "Attempts fail", handler=HANDLER)]))
    assert "orders: runs, 1 problem, consumer lag 214 records" in text
    assert text.index("Attempts fail") < text.index("What holds it back") < text.index("Last hour")


def test_a_handler_that_is_halted_alone_or_in_some_keys_says_so(page):
    halt = {"topic": "orders", "handler": HANDLER, "key": None, "since": SINCE, "by": "ann", "why": "it books twice"}
    keys = [{**halt, "key": key} for key in ("1", "2")]
    assert f"{HANDLER} 2 96 1 s 0 halted by ann: it books twice" in words(page(TOPIC, halted_handlers=[*keys, halt]))
    assert f"{HANDLER} 2 96 1 s 0 2 keys halted" in words(page(TOPIC, halted_handlers=keys))
    assert "halted" not in words(page(TOPIC, halted_handlers=[{**halt, "topic": "mail"}])).partition("Halted and")[0]


def test_a_handler_is_halted_from_its_page_by_who_may(page):
    assert f'href="/topics/orders/halt?handler={HANDLER}">Halt…</a>' in page(ONE)
    assert "/topics/orders/halt" not in page(ONE, Role.VIEWER)


def test_a_handler_is_halted_with_its_topic(page):
    halted = {"orders": {"since": SINCE, "by": "ann", "why": "the period is closed"}}
    assert f"{HANDLER} 2 96 1 s 0 halted with orders" in words(page(TOPIC, halted=halted))
    assert f"{HANDLER}: halted, " in words(page(ONE, halted=halted))


def test_a_handler_that_no_worker_of_its_queue_knows_does_not_run(page):
    other = {**WORKER, "handlers": ["another"], "holds": {}}
    assert f"{HANDLER}: no worker knows it" in words(page(ONE, workers={"host:2": other}))
    assert "no worker knows it of those that take queue q" in words(page(TOPIC, workers={"host:2": other}))
    some = page(ONE, workers={"host:2": WORKER, "host:3": other, "host:4": {**other, "queues": ["r"]}})
    assert f"{HANDLER}: 1 of 2 workers does not know it" in words(some)


def test_a_topic_of_which_no_bridge_reads_anything_does_not_run(page):
    away = {**BRIDGE, "obstacles": ["Kafka does not answer: 1/1 brokers are down."]}
    text = words(page(TOPIC, bridges={"host:1": away}))
    assert "orders: nothing is read" in text
    assert "nothing is read Kafka does not answer: 1/1 brokers are down." in text
    assert "orders: runs" in words(page(TOPIC, bridges={"host:1": away, "host:3": BRIDGE}))


def test_what_does_not_answer_takes_its_part_of_the_page_away_and_no_other(page, console):
    text = words(page(TOPIC, topics=None, parked=None, counts=None, unanswered=["Kafka does not answer: no"]))
    assert "Kafka does not respond." in text
    assert "No response for" in text
    assert f"{HANDLER} ? 96 1 s 0 runs" in text


def test_where_bridges_are_not_known_no_partition_is_said_to_have_none(page):
    text = words(page(TOPIC, bridges=None, unanswered=["Redis does not answer: no"]))
    assert "0 100 307 207 ? not known" in text
    assert "no bridge has it" not in text


def test_a_handler_shows_its_queue_workers_batches_and_groups_with_open_letters(page, record):
    now = int(time.time() * 1000)
    record(letter(1, failed_at=now), letter(2, failed_at=now))
    text = words(page(ONE))
    assert f"{HANDLER}: runs, 2 open letters" in text
    assert "Queue q : 12 messages wait" in text
    assert "Workers 1 with 8 processes well" in text
    assert "Versions 1.4.2" in text
    assert "Deliveries per message 12: 4 ms each" in text
    assert "orders 2 1 s" in text
    assert "its code's Policy and its history" in text
    assert re.search(r"Groups with open letters.*CardDeclined|Groups with open letters.* 2 ", text)


@pytest.mark.parametrize(("state", "word"), [("open", "open"), ("probing", "half-open"), ("ramping", "closing")])
def test_a_handler_says_what_it_waits_for_and_who_changed_its_policy(page, state, word):
    breaker = {"handlers": [HANDLER], "state": state, "since": SINCE, "why": "38 of 40", "waiting_deliveries": 1_200}
    text = words(page(ONE, breakers={"smtp": breaker}, policies={HANDLER: "changed by bob: max_retries=20"}))
    assert f"smtp : circuit breaker {word} since {SHOWN} UTC: 38 of 40 ; 1,200 deliveries wait for it" in text
    assert "changed by bob: max_retries=20" in text


def test_a_handler_shows_the_limit_that_it_shares(page, console, monkeypatch):
    limits = {
        "bank": {"per_second": 50, "burst": 100, "concurrency": None, "handlers": [HANDLER], "waiting": 7, "running": 0}
        | {"wait_seconds": 2.0}
    }
    assert "limit bank" not in words(page(ONE, limits=limits))
    handlers = console.desk.routes.handlers
    limited = replace(handlers[HANDLER], limit=Limit("bank", per_second=50))
    monkeypatch.setitem(handlers, HANDLER, limited)
    said = "Limit limit bank: 50 a second, bursts of 100; about 7 deliveries wait up to 2 s"
    assert said in words(page(ONE, limits=limits))
    assert re.search("Limit bank ?: not known", words(page(ONE)))


@pytest.mark.parametrize("path", ["/topics/other", "/handlers/other", "/events?of=topic-other", "/events?of=handler-x"])
def test_of_what_is_not_there_is_no_page(browser, console, path):
    console.status_cache = make_status_cache(status)
    assert browser().get(path).status_code == 404


@pytest.mark.parametrize(
    ("name", "live", "start"), [("orders", topic_page.watch_topic, "t"), (HANDLER, handler_page.watch_handler, "h")]
)
def test_an_open_page_is_told_what_changes_and_each_part_has_a_place_in_it(page, console, name, live, start):
    found = page(TOPIC if start == "t" else ONE)
    told = live(console, name)()
    for place in told.parts:
        assert found.count(f'id="{place}"') == 1, place
    assert f'data-act="{told.act}"' in found
    console.status_cache = make_status_cache(
        lambda: status(problems=[Problem("x", "old", "y", topic="orders", handler=HANDLER)])
    )
    assert live(console, name)().act != told.act


def test_what_others_wrote_is_text(page, console):
    hostile_bridge = {
        **BRIDGE,
        "paused": {"orders-0": hostile_input.TEXT},
        "batches": {HANDLER: {"size": 1, "why": "<b>"}},
    }
    halted = {"orders": {"since": SINCE, "by": hostile_input.TEXT, "why": hostile_input.TEXT}}
    workers = {"w": {**WORKER, "handler_versions": {HANDLER: hostile_input.TEXT}}}
    for path in (TOPIC, ONE):
        page(path, bridges={hostile_input.TEXT: hostile_bridge}, halted=halted, workers=workers)
    for html in topic_page.watch_topic(console, "orders")().parts.values():
        hostile_input.check(html.replace("<text ", "<b "))


def test_who_halted_a_topic_is_told_also_where_it_was_done_in_a_terminal(browser, console, monkeypatch):
    console.status_cache = make_status_cache(status)
    history = [
        {"halted": False, "by": "ops@host", "at": SINCE, "why": "mended"},
        {"halted": True, "by": hostile_input.TEXT, "at": SINCE, "why": hostile_input.TEXT},
    ]
    monkeypatch.setattr(commands, "read_halt_history", lambda settings, name: history)
    found = browser().get("/topics/orders/decisions").text
    hostile_input.check(found)
    assert "resumed it" in found
    assert "ops@host" in found
    whole = browser().get("/topics/orders?decisions=1").text
    assert "ops@host" in whole

    def silent(settings, name):
        raise NotDecided("Neither Kafka nor Redis answers: start one of them.")

    monkeypatch.setattr(commands, "read_halt_history", silent)
    answer = browser().get("/topics/orders/decisions")
    assert answer.status_code == 503
    assert "Neither Kafka nor Redis answers" in answer.text


def test_who_looks_at_the_overview_at_a_topic_and_at_a_handler_ask_the_desk_once_and_count_no_plan(
    console, monkeypatch
):
    asked, counted = [], LetterTotals.counted

    def totals(self):
        asked.append("totals")
        return counted(self)

    monkeypatch.setattr(LetterTotals, "counted", totals)
    monkeypatch.setattr(plan_item_rows, "count_item_states", lambda *_: asked.append("items"))
    console.status_cache = make_status_cache(status)
    for make in (
        overview_page.watch_overview(console, ""),
        topic_page.watch_topic(console, "orders"),
        handler_page.watch_handler(console, HANDLER),
    ):
        make()
    assert asked == ["totals"]


def test_what_can_be_no_handler_s_name_is_none_without_asking_kafka(browser):
    # Kafka and Redis are away here: of any other name nobody knows.
    assert browser(Role.VIEWER).get("/handlers/%00/policy").status_code == 404
