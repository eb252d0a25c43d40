"""What is promised of a letter's page: all that is known of it, whatever it says, and nothing in it acts."""

import re
from dataclasses import replace
from html import unescape

import pytest

from bridge.console.console import STATIC_FOLDER
from bridge.console.pages import letters_page as page_of
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import letter_rows, plan_item_rows
from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.formats.attempt_history import AttemptNote
from bridge.inspection import record_search
from tests.desk.letters import letter
from tests.web import hostile_input
from tests.web.payload_lines import read_lines as lines

PYTHON = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.13/site-packages/tasks/execution/batch_run.py", line 143, in run
    call()
  File "/app/orders/money.py", line 28, in to_minor
    Decimal(total)
decimal.InvalidOperation: conversion

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/.venv/lib/python3.13/site-packages/celery/app/trace.py", line 453, in trace_task
    R = fun()
  File "/app/.venv/lib/python3.13/site-packages/tasks/execution/batch_run.py", line 143, in run
    call()
  File "/app/orders/handlers.py", line 57, in charge
    to_minor(total)
  File "/app/orders/money.py", line 31, in to_minor
    raise ValueError(total) from fault
ValueError: total is '12,5O'
"""


def text(html):
    return unescape(re.sub(r"<[^>]+>", "", html))


def panel(page, name):
    (found,) = re.findall(rf'<section class="panel[^"]*"[^>]* aria-labelledby="{name}".*?</section>', page, re.DOTALL)
    return found


def test_json_is_indented_and_its_numbers_and_doubled_names_stay_as_they_were_sent(browser, record):
    record(letter(1, value=b'{"trace":9007199254740993,"a":1.10,"a":1E400,"deep":[{},[]],"s":"x\\"}"}'))
    assert lines(browser().get("/letters/1").text) == [
        "{",
        '  "trace": 9007199254740993,',
        '  "a": 1.10,',
        '  "a": 1E400,',
        '  "deep": [',
        "    {},",
        "    []",
        "  ],",
        '  "s": "x\\"}"',
        "}",
    ]


def test_a_value_can_be_seen_as_it_was_sent_and_in_hexadecimal(browser, record):
    record(letter(1, value=b'{"a" :1}'))
    assert lines(browser().get("/letters/1?value=sent").text) == ['{"a" :1}']
    page = browser().get("/letters/1?value=hex").text
    assert "7b 22 61 22 20 3a 31 7d" in page


def test_what_is_no_text_is_shown_in_hexadecimal_around_the_byte_that_is_none(browser, record):
    record(letter(1, value=b"a" * 1_000 + b"\xff\xd8" + b"b" * 5_000))
    page = browser().get("/letters/1").text
    assert "It is no text from byte 1,000 on." in text(page)
    assert '<tr class="is-bad"><th scope="row">000003e0</th>' in page
    assert "000003a0" in page
    following = re.findall(r'href="([^"]*)">Next 4 KB', page)
    assert "000013" in browser().get(unescape(following[0])).text


def test_a_json_text_that_is_broken_is_shown_as_sent_with_the_place(browser, record):
    record(letter(1, value=b'{"a": 1,}'))
    page = browser().get("/letters/1").text
    assert lines(page) == ['{"a": 1,}']
    assert "It is no JSON from byte 8 on." in text(page)


@pytest.mark.parametrize("way", ["pretty", "sent"])
def test_a_large_value_comes_in_parts_and_nothing_of_it_is_missing(browser, record, way):
    value = b"[" + b",".join(b'{"number":%d}' % at for at in range(9_000)) + b"]"
    record(letter(1, value=value))
    here, address, found = browser(), f"/letters/1?value={way}", []
    while True:
        page = here.get(address).text
        assert len(page) < 600_000
        found += lines(page)
        following = re.findall(r'href="([^"]*)">Next part', page)
        if not following:
            break
        address = unescape(following[0])
    assert "".join(found).replace(" ", "").replace("\n", "").encode() == value


def test_what_is_nested_without_end_is_indented_as_deep_as_it_is_bounded(browser, record):
    record(letter(1, value=b"[" * 100_000 + b"]" * 100_000))
    answer = browser().get("/letters/1")
    assert answer.status_code == 200
    assert len(lines(answer.text)) < 100


def test_a_tombstone_and_an_empty_value_say_so(browser, record):
    record(letter(1, value=None), letter(2, value=b""))
    assert "a tombstone" in browser().get("/letters/1").text
    assert "It is empty: 0 bytes." in browser().get("/letters/2").text


def test_what_the_error_quotes_is_marked_in_the_value(browser, record):
    record(letter(1, value=b'{"total": "12,5O"}', error_message="total is '12,5O'"))
    assert "<mark>12,5O</mark>" in panel(browser().get("/letters/1").text, "h-value")


def test_a_download_is_the_value_byte_for_byte_and_nothing_that_a_browser_would_show(browser, record):
    record(letter(1, value=hostile_input.BYTES))
    answer = browser().get("/letters/1/value")
    assert answer.content == hostile_input.BYTES
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")


def test_the_users_frames_are_marked_those_of_others_folded_and_causes_too(browser, record):
    record(letter(1, traceback=PYTHON, error_message="total is '12,5O'"))
    trace = panel(browser().get("/letters/1").text, "h-trace")
    yours = [text(each) for each in re.findall(r'<li class="yours"><b>(.*?)</b>', trace)]
    assert yours == [
        'File "/app/orders/handlers.py", line 57, in charge',
        'File "/app/orders/money.py", line 31, in to_minor',
    ]
    assert "2 frames of other code" in trace
    assert "Because of" in trace
    assert "raised here" in trace.split("orders/money.py")[-1]
    assert 'class="err"' in trace


def test_each_failure_has_its_own_traceback(browser, record):
    record(letter(1, traceback=PYTHON, error_message="total is '12,5O'"))
    record(letter(1, offset=9, number=1, failed_at=99_000, traceback=PYTHON.replace("charge", "again")))
    assert ", in again" in text(panel(browser().get("/letters/1").text, "h-trace"))
    assert ", in charge" in text(panel(browser().get("/letters/1?failure=1").text, "h-trace"))


def test_a_value_that_was_mended_is_shown_as_a_difference_in_its_history(browser, record):
    record(letter(1, value=b'{"total": "12,5O"}'))
    record(letter(1, offset=9, number=1, failed_at=99_000, value=b'{"total": "12,50"}'))
    notes = panel(browser().get("/letters/1").text, "h-notes")
    assert "<del><bdi>O</bdi></del>" in notes
    assert "<ins><bdi>0</bdi></ins>" in notes


@pytest.mark.parametrize("status", [LetterStatus.REPLAYING, LetterStatus.RESOLVED])
def test_a_letter_that_went_back_with_another_value_shows_which_and_that_it_was_replayed(browser, record, desk, status):
    record(letter(1, value=b'{"amount": "12,5O"}'))
    plan = desk.mending.edit(1, b'{"amount": 1250}', "ann")
    assert "another value" not in browser().get("/letters/1").text
    with desk.database.writing() as connection:
        plan_item_rows.claim_items(connection, plan.id, {1: LogPosition("orders.replay", 0, 1)}, 100_000)
        letter_rows.change_letter_status(connection, [1], LetterStatus.OPEN, LetterStatus.REPLAYING, 100_000, plan.id)
        letter_rows.change_letter_status(connection, [1], LetterStatus.REPLAYING, status, 101_000, plan.id)
    page = browser().get("/letters/1").text
    sent = text(panel(page, "h-sent"))
    assert ("Done" if status is LetterStatus.RESOLVED else "Sent") + " with another value" in sent
    assert '"12,5O"' in sent
    assert "1250" in sent
    assert "Value that failed" in page
    assert [text(each) for each in re.findall(r"<dd>(.*?)</dd>", panel(page, "h-way"))] == ["13", "0", "0", "1"]


def test_its_way_has_what_became_of_its_attempts_and_each_station(browser, record):
    record(letter(1))
    way = panel(browser().get("/letters/1").text, "h-way")
    assert [text(each) for each in re.findall(r"<dd>(.*?)</dd>", way)] == ["13", "0", "0", "0"]
    assert "the record was produced" in way
    assert "died: exhausted, after 13 attempts" in way


def test_a_letter_that_died_again_is_to_be_edited_says_its_page(browser, record):
    record(letter(1))
    assert "Edit it." not in browser().get("/letters/1").text
    record(letter(1, offset=9, number=1, failed_at=99_000))
    page = browser().get("/letters/1").text
    assert "Edit it." in page
    assert re.search(r'class="btn first" href="/letters/1/edit"', page)


def test_an_operator_notes_something_and_a_viewer_may_not(browser, record):
    record(letter(1))
    here = browser()
    said = {"token": here.token, "note": "the bank has it <by hand>"}
    answer = here.post("/letters/1/notes", data=said)
    assert (answer.status_code, answer.headers["location"]) == (303, "/letters/1#notes")
    notes = panel(here.get("/letters/1").text, "h-notes")
    assert "the bank has it &lt;by hand&gt;" in notes
    assert "ann" in notes
    viewer = browser(Role.VIEWER)
    assert viewer.post("/letters/1/notes", data={"token": viewer.token, "note": "x"}).status_code == 403
    assert 'id="note"' not in viewer.get("/letters/1").text
    assert here.post("/letters/1/notes", data={"token": here.token, "note": "  "}).status_code == 400
    assert here.post("/letters/1/notes", data={"token": "forged", "note": "x"}).status_code == 403


def test_newer_and_older_walk_the_list_that_one_came_from(browser, record):
    record(*(letter(at, failed_at=1_000 + at, reason="permanent" if at % 2 else "exhausted") for at in range(1, 8)))
    here = browser()
    (row,) = re.findall(r'<a href="([^"]*)"><bdi>orders</bdi>-0-3</a>', here.get("/letters?reason=permanent").text)
    page = here.get(unescape(row)).text
    newer, older = (re.findall(rf'rel="{rel}" href="([^"]*)"', page)[0] for rel in ("prev", "next"))
    assert re.search(r"<h2[^>]*>Timeline</h2><p[^>]*><a[^>]*><bdi>orders</bdi>-0-5", here.get(unescape(newer)).text)
    assert re.search(r"<h2[^>]*>Timeline</h2><p[^>]*><a[^>]*><bdi>orders</bdi>-0-1", here.get(unescape(older)).text)
    assert 'rel="prev"' not in here.get("/letters/1").text


def test_what_became_of_the_message_elsewhere_is_asked_for_apart_from_the_page(browser, record, monkeypatch):
    record(letter(1))
    found = [
        {
            "handler": "orders.notify",
            "fate": "parked",
            "where": "waits",
            "since": None,
            "last_error": hostile_input.TEXT,
            "task": None,
        },
        {
            "handler": "orders.handlers.charge",
            "fate": "dead",
            "where": None,
            "since": None,
            "last_error": None,
            "task": None,
        },
    ]
    monkeypatch.setattr(page_of, "find_sibling_deliveries", lambda *_: found)
    page = browser().get("/letters/1").text
    assert "orders.notify" not in page
    for address in ("/letters/1/elsewhere", "/letters/1?elsewhere=1"):
        page = browser().get(address).text
        assert "orders.notify" in page
        assert "(this one)" in page
        hostile_input.check(page)


@pytest.mark.parametrize("away", [KafkaUnavailable("Kafka does not answer: <b>"), LedgerUnavailable("Redis is away")])
def test_where_kafka_or_redis_is_away_the_page_stays_and_says_who_does_not_answer(
    browser, record, desk, monkeypatch, away
):
    def not_there(*_):
        raise away

    record(letter(1))
    monkeypatch.setattr(record_search, "find_record", not_there)
    desk.settings.__dict__["ledger_url"] = "redis://localhost:1/0"
    answer = browser().get("/letters/1?elsewhere=1")
    assert answer.status_code == 200
    assert f"not known: {away}" in text(panel(answer.text, "h-others"))
    hostile_input.check(answer.text)


def test_a_broker_that_is_no_redis_leaves_the_fates_of_others_unknown(browser, record):
    record(letter(1))
    assert "the broker is no Redis" in browser().get("/letters/1/elsewhere").text


def test_a_value_too_large_for_the_database_is_read_from_kafka_when_it_is_asked_for(browser, record, monkeypatch):
    record(letter(1, value=b'{"large":1}'), largest=3)
    here = browser()
    page = here.get("/letters/1").text
    assert "It is in Kafka" in page
    assert here.get("/letters/1/value").status_code == 404

    def given(_settings, found):
        return replace(found, value=b'{"large":1}', kept=True)

    monkeypatch.setattr(page_of, "fetch_letter_value", given)
    assert lines(here.get("/letters/1?kafka=1").text) == ["{", '  "large": 1', "}"]
    assert here.get("/letters/1/value?kafka=1").content == b'{"large":1}'


def test_where_kafka_does_not_give_a_value_the_page_stays_and_says_why(browser, record, monkeypatch):
    def not_there(*_):
        raise KafkaUnavailable("Kafka does not answer: no broker.")

    record(letter(1, value=b"large"), largest=3)
    monkeypatch.setattr(page_of, "fetch_letter_value", not_there)
    answer = browser().get("/letters/1?kafka=1")
    assert answer.status_code == 200
    assert "Kafka does not answer: no broker." in text(panel(answer.text, "h-value"))


@pytest.mark.parametrize("way", ["", "?value=pretty", "?value=sent", "?value=hex", "?failure=1", "?from=3"])
def test_whatever_a_letter_says_its_page_is_harmless(browser, record, way):
    for value in (
        hostile_input.BYTES,
        hostile_input.TEXT.encode(),
        b'{"a": "%s"}' % hostile_input.TEXT.encode().replace(b'"', b"'"),
    ):
        names = {
            "handler": hostile_input.TEXT,
            "reason": hostile_input.TEXT,
            "version": hostile_input.TEXT,
            "place": hostile_input.TEXT,
        }
        common = {
            "error_class": hostile_input.TEXT,
            "error_message": hostile_input.TEXT + f" '{hostile_input.TEXT}'",
            "traceback": PYTHON
            + f'  File "{hostile_input.TEXT}", line 1, in {hostile_input.TEXT}\n    {hostile_input.TEXT}\n',
            "key": hostile_input.BYTES,
            "headers": (
                (hostile_input.TEXT, hostile_input.BYTES),
                ("a\udcff\udc80", hostile_input.TEXT.encode()),
                ("content-type", b"text/html"),
            ),
            "timestamp": 2**62,
            "consumer_group": hostile_input.TEXT,
        }
        place = {"topic_id": str(len(value))}
        record(letter(1, value=value, **common, **names, **place))
        record(letter(1, value=b"{}", offset=9, number=1, failed_at=99_000, **common, **names, **place))
    here = browser()
    here.post("/letters/1/notes", data={"token": here.token, "note": hostile_input.TEXT})
    for id_ in (1, 2, 3):
        answer = here.get(f"/letters/{id_}{way}")
        assert answer.status_code == 200
        hostile_input.check(answer.text)


def test_a_letter_that_is_not_there_is_a_page_that_says_so(browser):
    answer = browser().get("/letters/77")
    assert answer.status_code == 404
    assert "There is no dead letter 77" in answer.text
    assert browser().get("/letters/" + "9" * 30).status_code == 404
    assert browser().get("/letters/" + "9" * 6_000).status_code == 404


def test_a_letter_leads_to_its_trace_where_the_tracing_system_is_named(browser, record, desk):
    hop = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    record(letter(1, trace=hop), letter(2))
    assert "its trace" not in browser().get("/letters/1").text
    address = "https://grafana.example.com/explore?q={trace_id}&on=1"
    object.__setattr__(desk.settings.environment, "DEADLETTERS_TRACE_URL", address)
    page = browser().get("/letters/1").text
    assert 'href="https://grafana.example.com/explore?q=4bf92f3577b34da6a3ce929d0e0e4736&amp;on=1"' in page
    assert "its trace" not in browser().get("/letters/2").text


def test_the_traceback_comes_before_the_value_and_the_value_before_the_headers(browser, record):
    record(letter(1, traceback=PYTHON))
    page = browser().get("/letters/1").text
    assert page.index('id="h-trace"') < page.index('id="h-value"') < page.index('id="h-headers"')


def test_objects_and_lists_of_json_fold_and_what_is_deep_in_a_long_value_is_folded_at_first(browser, record):
    some = b",".join(b'{"sku":"kb-%d","price":{"eur":%d}}' % (at, at) for at in range(100))
    record(letter(1, value=b'{"lines":[' + some + b"]}"), letter(2, value=b'{"a":{"b":{"c":[1]}}}'))
    long, short = (panel(browser().get(f"/letters/{id_}").text, "h-value") for id_ in (1, 2))
    assert short.count("<details open>") == short.count("<details") == 4
    assert long.count("<details open>") == 2
    assert long.count("<details>") == 200
    assert "2 members }," in text(long)


def test_a_search_marks_its_places_and_opens_what_holds_them(browser, record):
    some = b",".join(b'{"sku":"kb-%d","price":{"eur":%d}}' % (at, at) for at in range(100))
    record(letter(1, value=b'{"lines":[' + some + b"]}"))
    here = browser()
    value = panel(here.get("/letters/1?search=KB-77&status=open").text, "h-value")
    assert value.count("<mark class=hit") == 1
    assert "<mark class=hit id=match>kb-77</mark>" in value
    assert value.count("<details open>") == 3
    assert "1 place" in text(value)
    assert '<input type="hidden" name="status" value="open">' in value
    assert "0 places" in text(panel(here.get("/letters/1?search=nowhere").text, "h-value"))


def test_a_search_of_what_is_hostile_is_harmless(browser, record):
    record(letter(1, value=b'{"a": "%s"}' % hostile_input.TEXT.encode().replace(b'"', b"'")))
    here = browser()
    for way in ("pretty", "sent"):
        answer = here.get("/letters/1", params={"search": hostile_input.TEXT[:190], "value": way})
        assert answer.status_code == 200
        hostile_input.check(answer.text)


def test_a_header_is_copied_as_it_is_and_leads_to_the_letters_that_have_it(browser, record):
    hostile = "a\u202eb\x85".encode()
    record(
        letter(1, headers=(("region", b"eu=west"), ("odd", hostile), ("bytes", b"\xff\x00"), ("none", None))),
        letter(2, headers=(("region", b"us"),)),
    )
    here = browser()
    headers = panel(here.get("/letters/1").text, "h-headers")
    assert re.findall('data-copy="([^"]*)"', headers)[-3:] == ["eu%3Dwest", "a%E2%80%AEb%C2%85", "ff%2000"]
    links = re.findall(r'href="([^"]*)" class="btn quiet row-btn">', headers)
    assert len(links) == 3
    for link in links:
        assert re.findall('href="/letters/([0-9]+)', here.get(unescape(link)).text) == ["1"]


def test_the_key_leads_to_the_letters_that_have_it(browser, record):
    record(letter(1, key=b"\x00k"), letter(2, key=b"other"))
    here = browser()
    (link,) = re.findall(r'class="btn quiet row-btn" href="([^"]*)"', panel(here.get("/letters/1").text, "h-headers"))
    assert re.findall('href="/letters/([0-9]+)', here.get(unescape(link)).text) == ["1"]


def test_all_scripts_of_the_console_together_are_small():
    scripts = [each for each in STATIC_FOLDER.iterdir() if each.suffix == ".js"]
    assert len(scripts) >= 3
    assert sum(len(each.read_bytes()) for each in scripts) <= 50_000


MADE = (
    AttemptNote(1, 5_000, 1_250, "mail.Down: no <b>", "celery@a", "1.4.2", "failed"),
    AttemptNote(2, 10_000, 30, "mail.Down: no", "celery@b", "1.5.0", "failed"),
)


def test_its_timeline_has_each_attempt_with_time_duration_worker_version_and_error(browser, record):
    record(letter(1, history=MADE, runs=2))
    way = panel(browser().get("/letters/1").text, "h-way")
    said = [" ".join(text(item).split()) for item in re.findall("<li>(.*?)</li>", way, re.DOTALL)]
    assert said[1] == "Attempt 1 failed after 1.2 s01 Jan 1970 00:00:05.000mail.Down: no <b>celery@a, version 1.4.2"
    assert said[2].startswith("Attempt 2 failed after 30 ms")
    assert said[3].startswith("died: exhausted, after 2 attempts")
    assert "log lines" not in way


def test_its_attempts_before_a_replay_stay_in_its_timeline(browser, record):
    record(letter(1, history=MADE, runs=2))
    record(letter(1, offset=9, number=1, failed_at=99_000, runs=3, history=(MADE[0]._replace(run=3, ended_at=99_000),)))
    way = text(panel(browser().get("/letters/1").text, "h-way"))
    assert [way.count(f"Attempt {run} failed") for run in (1, 2, 3)] == [1, 1, 1]
    assert "not kept" not in way


def test_whatever_an_attempt_says_the_page_is_harmless(browser, record):
    hostile = hostile_input.TEXT
    record(letter(1, history=(AttemptNote(1, 5_000, 0, hostile, hostile[:60], hostile[:30], "failed"),)))
    hostile_input.check(browser().get("/letters/1").text)


def test_an_attempt_leads_to_its_log_lines_where_a_log_store_is_named(browser, record, desk):
    record(letter(1, history=MADE, runs=2), letter(2))
    address = "https://logs.example.com/?q={delivery}&from={from}&to={until}"
    object.__setattr__(desk.settings.environment, "DEADLETTERS_LOGS_URL", address)
    way = panel(browser().get("/letters/1").text, "h-way")
    of = "https://logs.example.com/?q=orders-0-1%3Aorders.handlers.charge"
    links = [unescape(each) for each in re.findall('href="(https://[^"]*)"', way)]
    assert links == [f"{of}&from=-55000&to=70000", f"{of}&from=-56250&to=65000", f"{of}&from=-50030&to=70000"]
    object.__setattr__(desk.settings.environment, "DEADLETTERS_LOGS_URL", "https://logs.example.com/{trace_id}")
    assert "log lines" not in browser().get("/letters/2").text


def test_the_traceback_comes_with_the_command_that_makes_a_test_of_it(browser, record):
    record(letter(1, traceback=PYTHON), letter(2, traceback=PYTHON, origin="other"))
    command = "bridge deadletters show 1 --pytest"
    assert f'<code>{command}</code> <button type="button"' in panel(browser().get("/letters/1").text, "h-trace")
    assert "--pytest" not in browser().get("/letters/2").text
