"""What is promised of the pages of any record: its content, its comparison with a good one, and what blocks a topic."""

import re
from html import unescape

import pytest

from bridge.console import shown_record
from bridge.console.api import inspection_api
from bridge.console.pages import blocking_rows, record_page
from bridge.console.pages.blocking_rows import advise_on_block
from bridge.console.pages.payload_panel import list_header_rows
from bridge.console.pages.status_rows import PartitionRow
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NoSuchRecord
from bridge.inspection.blocking_records import BlockingRecord, BlockReport, WaitingLane, find_lanes
from bridge.inspection.last_good_record import GoodRecordSearch
from bridge.inspection.record_content import RecordContent
from bridge.ledger import Fate
from bridge.settings.masked_fields import read_mask_rules
from tests.desk.letters import HANDLER, letter
from tests.web import hostile_input
from tests.web.status_answer import status

RECORD = "/topics/orders/records/3/1234"


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def content(value=b'{"amount": 1}', offset=1234, key=b"cust-1", headers=(("version", b"1"),), **other):
    return RecordContent("orders", 3, offset, 1_795_226_284_000, key, value, headers, first=1000, end=1300, **other)


@pytest.fixture
def given(monkeypatch):
    """Says what Kafka gives: a record, or an error; of good ones, what the search finds."""

    def says(found, good=None):
        def read(*_):
            if isinstance(found, Exception):
                raise found
            return found

        def search(*asked, **_):
            says.asked = asked  # type: ignore[attr-defined]
            if isinstance(good, Exception):
                raise good
            return good

        for module in (shown_record, inspection_api):
            monkeypatch.setattr(module, "read_record_content", read)
        monkeypatch.setattr(record_page, "find_last_good_record", search)

    return says


def test_a_record_shows_value_key_and_headers_and_leads_to_where_it_is_and_to_its_neighbours(browser, given):
    given(content())
    page = browser(Role.VIEWER).get(RECORD).text
    text = words(page)
    assert "orders-3-1234 Written 21 Nov 2026 01:58:04.000 UTC" in text
    assert '"amount": 1' in text
    assert "key cust-1 , 6 bytes" in text
    assert "version 1 1" in text
    assert 'href="/topics/orders/records/3/1233"' in page
    assert 'href="/topics/orders/records/3/1235"' in page
    assert 'href="/find?q=orders-3-1234"' in page
    assert f"{RECORD}/good?by=key&amp;handler={HANDLER}" in page
    assert '"amount": 1' in words(browser(Role.VIEWER).get(f"{RECORD}/content").text)


def test_a_value_is_shown_as_it_is_asked_for_also_one_that_is_no_text(browser, given):
    given(content(b"\xff\x00abc", headers=(), key=None))
    page = browser().get(f"{RECORD}?value=hex").text
    assert "ff 00 61 62 63" in page
    assert 'href="/topics/orders/records/3/1234?value=sent"' in page
    assert "no key" in words(page)
    assert "Its producer wrote no headers." in page
    given(content(None))
    assert "its record is a tombstone" in browser().get(RECORD).text


@pytest.mark.parametrize(
    ("error", "code"),
    [(NoSuchRecord("orders-3-1234 was deleted: no."), 404), (KafkaUnavailable("Kafka does not answer: no."), 503)],
)
def test_a_record_that_cannot_be_shown_says_why_on_each_page_and_to_programs(browser, given, error, code, program):
    given(error)
    for path in (RECORD, f"{RECORD}/good"):
        answer = browser().get(path)
        assert answer.status_code == code
        assert str(error) in words(answer.text)
    part = browser().get(f"{RECORD}/content")
    assert (part.status_code, str(error) in words(part.text)) == (200, True)
    answer = program(f"/api/v1{RECORD}")
    assert (answer.status_code, answer.json()["detail"]) == (code, str(error))


@pytest.mark.parametrize("path", ["records/0/1", "records/0/1/content", "records/0/1/good", "blocking"])
def test_a_topic_that_no_handler_names_is_not_read(browser, given, program, path):
    given(content())
    answer = browser(Role.ADMIN).get(f"/topics/__consumer_offsets/{path}")
    assert answer.status_code == 404
    assert "the console shows the group's topics alone" in words(answer.text)
    assert program("/api/v1/topics/other/records/0/1").status_code == 404


@pytest.fixture
def program(console, browser):
    """Asks the API as a program of a viewer."""
    _, secret = console.desk.tokens.make("nightly", Role.VIEWER, "ann")
    client = browser()
    return lambda path: client.get(path, headers={"authorization": f"Bearer {secret}"})


def test_a_program_is_given_the_record_byte_for_byte(given, program):
    given(content(b"\xff"))
    found = program(f"/api/v1{RECORD}").json()
    assert (found["topic"], found["partition"], found["offset"]) == ("orders", 3, "1234")
    assert found["value"] == {"encoding": "base64", "data": "/w==", "size": 1}
    assert found["key"]["data"] == "cust-1"
    assert found["headers"] == [{"name": "version", "value": {"encoding": "utf-8", "data": "1", "size": 1}}]
    assert (found["masked"], found["format"], found["fault"]) == (0, "", "")


def test_a_record_of_a_hundred_thousand_headers_lists_a_hundred_and_makes_addresses_for_these_alone(browser, given):
    given(content(headers=tuple((f"h{number}", b"v") for number in range(100_000))))
    page = browser().get(RECORD).text
    assert "99,900 more headers: bridge find orders-3-1234 --value" in words(page)
    assert page.count('data-l="Bytes"') == 100
    rows = [
        *list_header_rows(content(headers=(("h", b"v"),) * 102).headers, "orders", LetterMasks(read_mask_rules("")))
    ]
    assert [bool(row.letters) for row in rows] == [True] * 100 + [False] * 2


def test_a_header_begins_no_line_of_a_comparison(browser, given):
    good = content(offset=1200)
    given(content(headers=(("version", b"1"), ("a", b"1\nversion: 2"))), GoodRecordSearch(good, 1200, 1234))
    text = words(browser().get(f"{RECORD}/good").text)
    assert r"this: a: 1\nversion: 2" in text


def test_a_record_is_compared_with_the_last_good_one_member_by_member(browser, given):
    good = content(b'{"amount":  2}', 1200, headers=(("version", b"0"),))
    given(content(), GoodRecordSearch(good, 1200, 1234))
    page = browser().get(f"{RECORD}/good").text
    text = words(page)
    assert "orders-3-1234 beside the last good record of its key" in text
    assert f"Good: the ledger has it as done for {HANDLER} . It is orders-3-1200 , written" in text
    assert 'good: "amount": 2 this: "amount": 1' in text
    assert "good: version: 0 this: version: 1" in text
    assert 'href="/topics/orders/records/3/1200"' in page
    assert given.asked[1:] == (("orders", 3), 1234, HANDLER, b"cust-1")
    browser().get(f"{RECORD}/good?by=handler")
    assert given.asked[1:] == (("orders", 3), 1234, HANDLER, None)
    assert browser().get(f"{RECORD}/good?handler=other").status_code == 404


def test_where_no_record_of_the_key_is_good_the_last_one_of_any_key_is_shown_and_said_to_be(
    browser, given, monkeypatch
):
    given(content())
    other = GoodRecordSearch(content(b'{"amount": 2}', 1200, key=b"cust-2"), 1200, 1234)
    monkeypatch.setattr(
        record_page,
        "find_last_good_record",
        lambda *asked, **_: GoodRecordSearch(None, 1000, 1234) if asked[4] else other,
    )
    text = words(browser().get(f"{RECORD}/good").text)
    assert "No record of the same key is done, so it has another key." in text
    assert 'good: "amount": 2 this: "amount": 1' in text
    assert "No good record was found" in words(browser().get(f"{RECORD}/good?by=key").text)


def test_a_search_that_ended_at_its_limit_says_what_was_searched_and_goes_on_there(browser, given):
    given(content(), GoodRecordSearch(None, 1100, 1234, "15 seconds"))
    page = browser().get(f"{RECORD}/good?by=handler").text
    text = words(page)
    assert "orders-3 was searched from offset 1,100 up to 1,234" in text
    assert "the search ended at its limit of 15 seconds" in text
    assert f'href="{RECORD}/good?by=handler&amp;before=1100"' in page
    browser().get(f"{RECORD}/good?by=handler&before=1100")
    assert given.asked[2] == 1100
    given(content(), GoodRecordSearch(None, 1000, 1234))
    assert "Search on" not in browser().get(f"{RECORD}/good").text
    given(content(), LedgerUnavailable("Redis at r:6379 does not answer."))
    answer = browser().get(f"{RECORD}/good")
    assert (answer.status_code, "Redis at r:6379 does not answer." in words(answer.text)) == (503, True)


def test_a_letter_is_compared_with_the_value_that_it_has_although_its_record_is_gone(browser, given, record):
    record(letter(1, value=b'{"amount": "x"}', key=b"cust-1", consumer_group="shop"))
    given(NoSuchRecord("gone"), GoodRecordSearch(content(b'{"amount": 2}', 0), 0, 1))
    assert 'href="/letters/1/good"' in browser().get("/letters/1").text
    text = words(browser().get("/letters/1/good").text)
    assert 'good: "amount": 2 this: "amount": "x"' in text
    assert given.asked[3] == HANDLER


def test_a_letter_of_another_group_is_not_compared_by_this_groups_ledger(browser, given, record):
    record(letter(1, consumer_group="billing"))
    given(NoSuchRecord("gone"), GoodRecordSearch(content(b'{"amount": 2}', 0), 0, 1))
    answer = browser().get("/letters/1/good")
    assert answer.status_code == 404
    assert "This letter is of the consumer group 'billing', and this console asks the ledger of" in words(answer.text)


def test_values_that_are_too_large_are_not_compared_and_said_to_be(browser, given):
    given(content(b"[" + b"1," * 600_000 + b"1]"), GoodRecordSearch(content(b"[]", 1200), 1200, 1234))
    assert "Values above 1,000,000 bytes are not compared here." in words(browser().get(f"{RECORD}/good").text)


def test_what_others_wrote_in_a_record_is_text(browser, given, monkeypatch):
    bad = hostile_input.TEXT.encode()
    hostile = content(bad, key=bad, headers=((hostile_input.TEXT, bad),), fault=hostile_input.TEXT)
    given(hostile, GoodRecordSearch(content(offset=1200), 1200, 1234))
    for path in (RECORD, f"{RECORD}/content", f"{RECORD}/good"):
        hostile_input.check(browser().get(path).text)
    monkeypatch.setattr(blocking_rows, "find_blocking_records", lambda *_: report_of(hostile))
    hostile_input.check(browser().get("/topics/orders/blocking").text)


# What blocks a topic


def report_of(head, **other):
    block = BlockingRecord(3, head.offset, {HANDLER: Fate.PARKED}, 65, None, head)
    return BlockReport("key", {3: block}, [WaitingLane(3, HANDLER, Fate.PARKED, head, (1240, 1250), 12)], **other)


def test_the_part_of_a_topic_names_each_blocking_record_and_who_waits_behind_whom(browser, monkeypatch, console):
    console.status_cache = make_status_cache(status)
    monkeypatch.setattr(blocking_rows, "find_blocking_records", lambda *_: report_of(content(), more=4))
    page = browser(Role.VIEWER).get("/topics/orders/blocking").text
    text = words(page)
    assert "3 orders-3-1234 cust-1" in text
    assert "parked for a retry" in text
    assert "It waits in a retry topic until its next attempt" in text
    assert 'href="/find?q=orders-3-1234"' in page
    assert f'href="{RECORD}"' in page
    assert "12 1240, 1250 and 10 more" in text
    assert "4 more keys have deliveries that wait." in text
    whole = browser(Role.VIEWER).get("/topics/orders").text
    assert 'data-part="/topics/orders/blocking"' in whole
    assert "orders-3-1234" in browser(Role.VIEWER).get("/topics/orders?blocking=1").text


def test_a_topic_that_nothing_blocks_says_so_and_so_does_a_server_that_is_down(browser, monkeypatch):
    monkeypatch.setattr(blocking_rows, "find_blocking_records", lambda *_: BlockReport("key"))
    text = words(browser().get("/topics/orders/blocking").text)
    assert "Nothing: every partition is committed to its end" in text
    assert "Nobody: no delivery waits behind another one." in text

    def fails(*_):
        raise LedgerUnavailable("Redis at r:6379 does not answer.")

    monkeypatch.setattr(blocking_rows, "find_blocking_records", fails)
    assert "Redis at r:6379 does not answer." in words(browser().get("/topics/orders/blocking").text)


HALTED = {"topic": "orders", "handler": HANDLER, "key": None}
BREAKER = {"handlers": [HANDLER], "state": "open"}


@pytest.mark.parametrize(
    ("fate", "bridge", "paused", "known", "said", "address"),
    [
        (Fate.DEAD, "b", "", {}, "replay or discard it", "/find?q=orders-3-7"),
        (Fate.PARKED, "b", "", {}, "waits in a retry topic", "/find?q=orders-3-7"),
        (Fate.HANDED, "b", "", {}, "A worker has it", "/find?q=orders-3-7"),
        (Fate.HANDED, "b", "", {"halted_handlers": [HALTED]}, "is halted: resume it", "/topics/orders/resume"),
        (Fate.HANDED, "b", "", {"breakers": {"bank": BREAKER}}, "breaker bank of", f"/handlers/{HANDLER}"),
        (Fate.HANDED, "b", "", {"halted": {"orders": {}}}, "The topic is halted", "/topics/orders/resume"),
        (Fate.OPEN, "", "", {}, "No bridge has this partition", None),
        (Fate.OPEN, "b", "queue q", {}, "has paused this partition: queue q", None),
        (Fate.OPEN, "b", "", {}, "the next that the bridge hands off", None),
    ],
)
def test_what_to_do_about_a_blocking_record_follows_from_its_fate_and_the_status(
    fate, bridge, paused, known, said, address
):
    row = PartitionRow(3, 7, 9, 2, bridge, paused, "")
    words_, remedy = advise_on_block("orders", BlockingRecord(3, 7, {HANDLER: fate}, 1), row, known)
    assert said in words_
    assert (remedy and remedy[1]) == address


UNSAFE = frozenset({Fate.OPEN, Fate.HANDED, Fate.PARKED})


def lanes(keys, fates, order="key", handlers=("a",)):
    records = [content(offset=10 + at, key=key) for at, key in enumerate(keys)]
    return find_lanes(handlers, records, 10, fates, UNSAFE, order)


def test_a_key_waits_behind_its_first_delivery_that_has_not_ended():
    fates = {"a": bytes([Fate.DONE, Fate.PARKED, Fate.HANDED, Fate.OPEN, Fate.OPEN])}
    (lane,) = lanes([b"x", b"x", b"y", b"x", None], fates)
    assert (lane.head.offset, lane.fate, lane.waiting, lane.count) == (11, Fate.PARKED, (13,), 1)
    (lane,) = lanes([b"x", b"x", b"y", b"x", None], fates, "partition")
    assert (lane.head.offset, lane.waiting) == (11, (12, 13, 14))


def test_a_message_of_a_sequence_waits_by_the_first_handler_that_has_not_ended():
    fates = {"a": bytes([Fate.DONE, Fate.OPEN]), "b": bytes([Fate.HANDED, Fate.OPEN])}
    (lane,) = lanes([b"x", b"x"], fates, handlers=("a", "b"))
    assert (lane.handler, lane.fate, lane.waiting) == ("a, b", Fate.HANDED, (11,))
