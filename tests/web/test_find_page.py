"""What is promised of Find: one field says where a record is, for each handler; and where it was looked for."""

import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import quote

import pytest

from bridge.console import record_lookup
from bridge.console.console import Console
from bridge.console.record_lookup import KeyQuery, LetterQuery, PlanQuery, RecordQuery, TimeQuery
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import DeskUnavailable, LedgerUnavailable
from bridge.inspection.record_search import SearchResult
from tests.desk.letters import HANDLER, letter
from tests.desk_of_stack import desk as desk_of
from tests.processes import Stack, stack
from tests.web import hostile_input
from tests.web.conftest import signed_in

__all__ = ["stack"]


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


def delivery(handler=HANDLER, fate="dead", **other):
    attempts = {"failed": 3, "lost": 1, "postponed": 0, "replayed": 1}
    said = {"handler": handler, "fate": fate, "where": "orders.dlq-3-14410", "since": "2026-11-21T02:45:39Z"}
    return {
        **said,
        "until": None,
        "attempts": attempts,
        "last_error": "ValueError: no",
        "task": None,
        "policy": None,
        **other,
    }


def record_of(*deliveries, key="cust-90412", offset=1, halted=None):
    place = {"topic": "orders", "partition": 0, "offset": offset, "key": key, "timestamp": 1_795_226_284_000}
    return {"record": place, "halted": halted, "deliveries": [*deliveries]}


def test_a_task_leads_to_its_page_in_flower_where_that_is_set_up(browser, known, desk):
    known(record_of(delivery(task="orders-0-1..9:a/b#2")))
    assert "/task/" not in browser().get("/find?q=orders-0-1").text
    object.__setattr__(desk.settings.environment, "DEADLETTERS_FLOWER_URL", "https://flower.example.com/up/")
    page = browser().get("/find?q=orders-0-1").text
    assert 'href="https://flower.example.com/up/task/orders-0-1..9%3Aa%2Fb%232"' in page


@pytest.fixture
def known(monkeypatch, desk):
    """Says what `bridge find` finds of a coordinate, and of a key."""

    def says(*found, by_key=()):
        kept = {0: (0, 200)}
        monkeypatch.setattr("bridge.console.record_lookup.find_record", lambda *_: SearchResult([*found], {}, kept))
        monkeypatch.setattr(
            "bridge.console.record_lookup.find_records_by_key", lambda *_: SearchResult([*by_key], {0: 100}, kept)
        )

    # The broker of the tests' desk is none that a ledger could be in.
    monkeypatch.setattr(type(desk.settings), "ledger_url", "redis://ledger")
    says()
    return says


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("orders-3-1234", RecordQuery("orders", 3, 1234, None)),
        ("a.b-c-3-1234", RecordQuery("a.b-c", 3, 1234, None)),
        ("orders-3-1234:orders.handlers.charge#2", RecordQuery("orders", 3, 1234, "orders.handlers.charge")),
        ("orders-3-10..12:orders.handlers.charge", RecordQuery("orders", 3, 10, "orders.handlers.charge")),
        ("48112", LetterQuery(48112)),
        ("plan 118", PlanQuery(118)),
        ("orders cust-90412", KeyQuery("orders", "cust-90412")),
        ("orders 2026-11-21 02:45", TimeQuery("orders", datetime(2026, 11, 21, 2, 45, tzinfo=UTC))),
        ("orders 2026-11-21t01:45:39.5z", TimeQuery("orders", datetime(2026, 11, 21, 1, 45, 39, 500_000, tzinfo=UTC))),
        ("orders 2026-11-21T03:45+01:00", TimeQuery("orders", datetime.fromisoformat("2026-11-21T02:45+00:00"))),
        ("orders 2026-11-21", KeyQuery("orders", "2026-11-21")),
        ("orders 2026-13-21 02:45", KeyQuery("orders", "2026-13-21 02:45")),
        ("orders 0001-01-01T00:00+14:00", KeyQuery("orders", "0001-01-01T00:00+14:00")),
        ("orders 9999-12-31T23:59-14:00", KeyQuery("orders", "9999-12-31T23:59-14:00")),
        ("nobody cust-90412", KeyQuery(None, "nobody cust-90412")),
        ("cust-90412", KeyQuery(None, "cust-90412")),
        ("²", KeyQuery(None, "²")),
        ("9" * 19, KeyQuery(None, "9" * 19)),
        ("orders-3-" + "9" * 19, KeyQuery(None, "orders-3-" + "9" * 19)),
        ("orders-٣-1", KeyQuery(None, "orders-٣-1")),
    ],
)
def test_what_is_asked_for_is_told_by_how_it_is_written(text, meant):
    assert record_lookup.parse_lookup_query(text, ["orders"]) == meant


@pytest.mark.parametrize(
    ("fates", "said"),
    [
        (["dead", "open", "done"], "is dead for 1 of 3 handlers"),
        (["done", "done"], "is done for all 2 handlers"),
        (["done"], "is done for its handler"),
        (["done", "discarded"], "has ended for all handlers"),
        (["handed"], "is in flight for 1 of 1 handler"),
        (["parked", "handed"], "is parked for 1 of 2 handlers"),
        ([], "is in Kafka, and no handler has its topic"),
    ],
)
def test_the_heading_is_the_answer(fates, said):
    assert record_lookup.describe_fate([delivery(fate=fate) for fate in fates]) == said


def test_a_record_is_where_each_handler_has_it_with_its_letter(browser, known, record):
    record(letter(1))
    known(record_of(delivery(), delivery("orders.handlers.notify", "done", where=None, last_error=None)))
    page = browser(Role.VIEWER).get("/find?q=orders-0-1").text
    text = words(page)
    assert text.startswith("orders-0-1 is dead for 1 of 2 handlers")
    assert "Key cust-90412 , written 21 Nov 2026" in text
    assert f"{HANDLER} dead letter 1 orders.dlq-3-14410" in text
    assert '<a href="/letters/1">letter 1</a>' in page
    assert "3 1 0 1 ValueError: no" in text
    assert 'value="orders-0-1"' in page
    assert browser(Role.VIEWER).get(f"/find?q={quote(f'orders-0-1:{HANDLER}#2')}").text.count("letter 1</a>") == 1


def test_what_is_not_found_says_where_it_was_looked_for_and_not_that_it_is_lost(browser, known):
    answer = browser().get("/find?q=orders-0-1")
    text = words(answer.text)
    assert answer.status_code == 404
    assert text.startswith("orders-0-1 was not found That does not mean that it is lost")
    assert "Kafka and the ledger: orders-0, offsets 0 up to 200." in text
    assert "The dead letters' database" in text


def test_a_key_is_looked_for_among_the_letters_at_once_and_in_a_topic_when_that_is_asked(browser, known, record):
    record(letter(1, key=b"cust-1"), letter(2, key=b"cust-2"))
    known(by_key=[record_of(delivery(), offset=1), record_of(delivery(fate="done"), offset=9)])
    page = browser().get("/find?q=cust-1").text
    assert words(page).startswith("1 dead letter of cust-1")
    assert '<a href="/find?q=orders+cust-1">' in page or '<a href="/find?q=orders%20cust-1">' in page
    page = browser().get("/find?q=orders cust-1").text
    assert 'href="/find?q=orders+cust-1&amp;below=0%3A100">Search on in earlier records</a>' in page
    assert 'href="/topics/orders/records/0/9">Value, key and headers</a>' in page
    text = words(page)
    assert text.startswith("2 records of this key in orders")
    assert "offsets 100 up to 200" in text
    assert text.index("orders-0-1") < text.index("orders-0-9")


def test_a_letter_and_a_plan_are_opened(browser, known, record):
    record(letter(1))
    assert browser().get("/find?q=1").headers["location"] == "/letters/1"
    assert browser().get("/find?q=plan 7").headers["location"] == "/plans/7"
    answer = browser().get("/find?q=999")
    assert answer.status_code == 404
    assert "for a letter 999" in words(answer.text)


def test_a_server_that_is_away_is_said_and_the_other_asked_all_the_same(browser, known, record, monkeypatch):
    def away(*_):
        raise LedgerUnavailable("Redis at r:6379 does not answer.")

    def gone(*_):
        raise DeskUnavailable("The dead letters' database (pg) could not be read.")

    record(letter(1))
    monkeypatch.setattr("bridge.console.record_lookup.find_record", away)
    text = words(browser().get("/find?q=orders-0-1").text)
    assert "Redis at r:6379 does not answer." in text
    assert "sqlite" not in text
    assert text.startswith("1 dead letter of orders-0-1")
    monkeypatch.setattr("bridge.deadletters.inspection.letter_lookup.LetterLookup.at", gone)
    answer = browser().get("/find?q=orders-0-1")
    assert words(answer.text).startswith("It is not known where orders-0-1 is")
    assert "(pg)" not in answer.text
    known(record_of(delivery()))
    assert words(browser().get("/find?q=orders-0-1").text).startswith("orders-0-1 is dead")


def test_without_a_question_it_says_what_can_be_asked(browser):
    assert words(browser().get("/find").text).startswith("Find a record")
    assert "1,000 characters" in words(browser().get(f"/find?q={'x' * 1001}").text)


@pytest.mark.parametrize(("typed", "asked"), [("0-1", "orders-0-1"), ("cust-1", "orders cust-1"), ("orders-0-1",) * 2])
def test_what_is_typed_on_the_page_of_a_topic_is_of_that_topic(browser, known, typed, asked):
    assert f'value="{asked}"' in browser().get("/find", params={"topic": "orders", "q": typed}).text
    assert f'value="{typed}"' in browser().get("/find", params={"topic": "mails", "q": typed}).text


def test_a_place_to_search_on_from_that_is_none_is_refused(browser, known):
    assert browser().get("/find?q=orders x&below=0:1,2:3").status_code == 404
    assert browser().get("/find?q=orders x&below=0:1;drop").status_code == 400


@pytest.mark.parametrize("path", ["/find", "/audit", "/letters"])
def test_the_field_is_on_every_page(browser, path):
    page = browser().get(path).text
    assert '<form class="find" role="search" action="/find">' in page
    assert page.count('id="find"') == 1


def test_what_others_wrote_is_text_and_so_is_what_was_asked(browser, known):
    halted = {"since": "2026-11-21T02:45:39Z", "by": hostile_input.TEXT, "why": hostile_input.TEXT}
    bad = dict.fromkeys(("where", "last_error", "task", "policy"), hostile_input.TEXT)
    known(record_of(delivery(hostile_input.TEXT, **bad), key=hostile_input.TEXT, halted=halted))
    hostile_input.check(browser().get("/find?q=orders-0-1").text)
    hostile_input.check(browser().get("/find", params={"q": hostile_input.TEXT}).text)
    assert browser().get("/find?q=0xzz").status_code == 404


def test_it_finds_what_bridge_find_finds_on_the_servers(stack: Stack):
    stack.make_topics("orders")
    (place,) = stack.produce("orders", {"id": 1}, key=b"4711")
    with desk_of(stack, "orders") as desk, signed_in(Console(desk, "shop"), Role.VIEWER) as client:
        text = words(client.get(f"/find?q={place}").text)
        assert text.startswith(f"{place} is open for 1 of 1 handler")
        assert "Key 4711" in text
        assert "not handed off" in text
        assert words(client.get(f"/find?q={stack.topic('orders')} 4711").text).startswith("1 record of this key")
        assert client.get(f"/find?q={stack.topic('orders')}-0-99").status_code == 404
        assert "which has no topic" in words(client.get("/find?q=nobodys-0-1").text)
