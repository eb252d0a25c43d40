"""What is promised of the overview: what needs a person, how all stands, and that it falls with no server."""

import re
import threading
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from bridge.console.console import Console
from bridge.console.pages import overview_page
from bridge.console.pages.status_view import ProblemLink, list_problem_links
from bridge.console.status_cache import (
    GroupStatus,
    GroupStatusReader,
    get_problem_subject,
    make_status_cache,
    read_group_status,
)
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.inspection.recorder_presence import RecorderPresence
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import DeskUnavailable
from bridge.kafka.dead_letter_reader import RecentDeadLetters
from bridge.operator_actions.topic_halt import halt_topics
from bridge.problems.problem import Problem
from tests.desk.letters import HANDLER, letter
from tests.desk_of_stack import desk as desk_of
from tests.processes import Stack, eventually, stack
from tests.web import hostile_input
from tests.web.conftest import signed_in
from tests.web.status_answer import BRIDGE, SINCE, WORKER, counts, status

__all__ = ["stack"]

HALTED = Problem(
    "Topic 'orders' is halted, since 2026-11-21 01:58:04 UTC (49 min), by ann: the period is closed. 412 records in "
    "Kafka wait. Fix the cause, then `bridge resume orders`: it continues exactly where it stopped.",
    "halted",
    "Topic 'orders' is halted",
    topic="orders",
    since=1_795_226_284,
    many=412,
    of="records",
    do="fix the cause, then `bridge resume orders`",
)
SILENT = "Redis at redis-0:6379 (LEDGER_URL) does not answer: connection refused. Start it."


def words(page):
    """The text of a page, as somebody reads it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


@pytest.fixture
def page(console, browser):
    """Loads the overview over what `bridge status` is to answer."""

    def loaded(role=Role.OPERATOR, path="/", **other):
        console.status_cache = make_status_cache(lambda: status(**other))
        answer = browser(role).get(path)
        assert answer.status_code == 200
        hostile_input.check(answer.text.replace("<text ", "<b "))
        return answer.text

    return loaded


def test_where_all_is_well_it_says_so_and_shows_how_each_topic_and_handler_stands(page):
    text = words(page())
    assert text.startswith("Nothing needs a person")
    assert "orders 2 partitions 214 Parked, by wait: 22 replay 0 5 min 22 runs" in text
    assert f"{HANDLER} Handled by the minute: 213 in 60 minutes, at most 120 in one, 3 in this one 2 96" in text
    assert "Workers of queue q 1 8 12 messages 1.4.2" in text
    assert "Bridges 1" in text
    assert "host:1 : 2 partitions" in text
    assert "Setup checklist" in text
    assert "KAFKA_HANDLERS_VERSION" not in text


def test_a_recorder_that_runs_without_dead_letters_is_there_and_old_dead_letters_are_no_recorder(
    page, console, record, monkeypatch
):
    monkeypatch.setattr(console, "recorders", lambda: RecorderPresence(living=("host:7",)))
    assert "1 alive, 0 letters The version" in words(page())
    record(letter(1))
    monkeypatch.setattr(console, "recorders", lambda: RecorderPresence(living=()))
    assert "1 letter bridge deadletters record runs beside the bridge" in words(page())


def test_each_problem_is_a_sentence_with_its_time_and_what_to_do(page):
    found = page(problems=[HALTED], halted={"orders": {"since": SINCE, "by": "ann", "why": "the period is closed"}})
    text = words(found)
    assert text.startswith("1 problem needs a person")
    assert "the period is closed" in text
    assert "halted by ann: the period is closed since 21 Nov 2026 01:58:04 UTC" in text
    assert '<time datetime="2026-11-21T01:58:04.000Z"' in found
    assert "<code><bdi>bridge resume orders</bdi></code>" in found
    assert '<a class="btn row-btn" href="/topics/orders/resume">Resume orders…</a>' in found
    assert "Setup checklist" not in text


def test_a_viewer_is_shown_no_link_to_what_it_may_not_do(page):
    found = page(Role.VIEWER, problems=[HALTED])
    assert "/topics/orders/resume" not in found
    assert re.search('<a class="btn row-btn" href="/topics/orders"[^>]*>Topic', found)
    assert "bridge resume orders" in found


@pytest.mark.parametrize(
    ("kind", "values", "links"),
    [
        (
            "halted",
            {"topic": "a/b"},
            (
                ProblemLink("Resume a/b…", "/topics/a%2Fb/resume", Role.OPERATOR),
                ProblemLink("Topic a/b", "/topics/a%2Fb"),
            ),
        ),
        ("policy", {"handler": "h"}, (ProblemLink("Policy of h…", "/handlers/h/policy"),)),
        ("no bridge", {}, ()),
        ("grows", {"group": 7}, (ProblemLink("Group 7", "/groups/7"),)),
        ("grows", {}, (ProblemLink("Groups", "/groups"),)),
        ("grows", {"handler": "h"}, (ProblemLink("Groups", "/groups?handler=h"),)),
        (
            "lost",
            {"topic": "a/b"},
            (ProblemLink("Audit", "/audit?topic=a%2Fb"), ProblemLink("Topic a/b", "/topics/a%2Fb")),
        ),
        ("old", {"handler": "h"}, (ProblemLink("Handler h", "/handlers/h"),)),
        ("unknown ends", {}, (ProblemLink("Letters without an outcome", "/letters?status=replaying"),)),
        ("approval", {}, (ProblemLink("Plans", "/plans"),)),
        ("dead", {"handler": "h"}, (ProblemLink("Open letters", "/letters?handler=h&status=open"),)),
    ],
)
def test_what_can_be_done_in_the_console_is_a_link(kind, values, links):
    assert tuple(list_problem_links(Problem("x", kind, "y", **values).data())) == links


FAILS = Problem(
    "Every attempt of it fails.", "failing", "Every attempt fails", handler=HANDLER, since=5.0, many=12, of="attempts"
)
DYING = Problem("The topic is paused.", "dying", "Topic 'orders' is paused", topic="orders", since=6.0)


def grows(group):
    return Problem(f"Group {group} grows a lot.", "grows", f"Group {group} grows", handler=HANDLER, group=group, many=3)


def test_a_fault_of_a_handler_is_one_line_with_its_name_count_and_age_once_and_the_rest_folded(page):
    found = page(problems=[DYING, FAILS, grows(7), grows(8)])
    text = words(found)
    assert text.startswith("1 problem needs a person")
    (row,) = re.findall(
        r'<tr role="row">(.*?)</tr>', found[found.index("What is wrong") : found.index("h-topics")], re.S
    )[:1]
    assert found.count("Every attempt fails") == 1
    folded = row[row.index("<details") : row.index("</details>")]
    assert "Details and 3 consequences" in folded
    for sentence in (
        "Every attempt of it fails.",
        "The topic is paused.",
        "Group 7 grows a lot.",
        "Group 8 grows a lot.",
    ):
        assert sentence in folded
        assert row.count(sentence) == 1
    for address in (f"/handlers/{HANDLER}", "/topics/orders/halt", "/groups/7"):
        assert f'<a class="btn row-btn" href="{address}"' in row


def test_groups_of_one_handler_are_one_line_that_counts_them(page):
    text = words(page(problems=[grows(7), grows(8)]))
    assert text.startswith("1 problem needs a person")
    assert f"2 groups of dead letters of {HANDLER} grow Details: 2 problems" in text
    assert "Group 7 grows a lot." in text


def test_a_group_that_grows_is_named_by_its_exception(page, record, desk):
    record(letter(1, error_class="decimal.InvalidOperation"))
    (group,) = desk.groups.ranked()
    found = page(problems=[grows(group.id), grows(999)])
    assert f">InvalidOperation group {group.id}<" in re.sub(r"<span[^>]*>|</span>|</?bdi>", "", found)
    assert ">Group 999<" in found


def test_what_follows_from_a_server_that_does_not_answer_is_no_problem_of_its_own(page):
    blocked = Problem("2 bridges consume nothing.", "obstacle", "2 of 2 bridges consume nothing")
    text = words(page(problems=[SILENT, blocked], unanswered=[SILENT]))
    assert text.startswith("1 problem needs a person")
    assert text.count("2 bridges consume nothing.") == 1


def test_a_server_is_one_problem_although_bridges_know_since_when_it_does_not_answer(page):
    refused = "Kafka at k:9092 does not answer: refused. Start it."
    since = "Kafka at k, since 2026-11-21 01:58:04 UTC (3 min):9092 does not answer: refused. Start it."
    problem = Problem(since, "silent", "Kafka at k", lost=None)
    assert words(page(problems=[problem], unanswered=[refused])).startswith("1 problem needs a person")


def test_parked_records_are_one_number_that_unfolds_by_wait(page):
    found = page()
    (cell,) = re.findall(r'<td role="cell" class="num" data-l="Parked">(<details.*?</details>)', found, re.S)
    assert words("<main" + cell) == "Parked, by wait: 22 replay 0 5 min 22"
    gone = page(parked=None)
    assert '<details class="parked"' not in gone


def test_how_many_it_concerns_and_how_many_are_lost_stand_in_columns(page):
    lost = Problem("9 records are gone.", "log", "Gone", topic="orders", since=5.0, many=9, of="records", lost=9)
    unknown = Problem("Who knows.", "silent", "Silent", lost=None, do="`start it`")
    found = page(problems=[HALTED, lost, unknown])
    rows = re.findall(r"<tr role=\"row\">(.*?)</tr>", found[found.index("What is wrong") :], re.S)
    shown = [words("<main" + row) for row in rows[:3]]
    assert "412 records 0 Resume" in shown[0]
    assert "9 records 9 Audit Topic orders" in shown[1]
    assert shown[2] == "Silent Details Who knows. \u2013 \u2013 ? start it"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"bridges": {}}, "no bridge reads it"),
        ({"bridges": {"host:1": {**BRIDGE, "topics": ["mails"]}}}, "no bridge reads it"),
        ({"bridges": {"b": {**BRIDGE, "paused": {"orders-0": "too many"}}}}, "1 partition paused too many"),
        (
            {
                "bridges": {
                    "b": {
                        **BRIDGE,
                        "paused": {"orders-0": "too many", "orders-1": "too many"},
                        "paused_since": {"orders-1": SINCE},
                    }
                }
            },
            "2 partitions paused too many since 21 Nov 2026 01:58:04 UTC",
        ),
        ({"workers": {}}, "no worker no worker consumes queue q"),
        ({"workers": {"w": {**WORKER, "queues": ["other"]}}}, "no worker"),
        ({"topics": {"orders": {}}}, "does not exist yet"),
        *(
            (
                {"breakers": {"smtp": {"handlers": [HANDLER], "state": state, "since": SINCE, "why": "38 of 40"}}},
                f"circuit breaker smtp is {word} 38 of 40 since 21 Nov 2026 01:58:04 UTC",
            )
            for state, word in (("open", "open"), ("probing", "half-open"), ("ramping", "closing"))
        ),
        ({"policies": {HANDLER: "changed by ann"}}, "policy, changed"),
    ],
)
def test_every_state_is_said_in_words(page, other, said):
    assert said in words(page(**other))


def test_a_server_that_does_not_answer_takes_its_part_away_and_no_other(page, record):
    record(letter(1))
    gone: dict[str, Any] = dict.fromkeys(("bridges", "workers", "queues", "topics", "parked", "counts"))
    found = page(problems=[SILENT], unanswered=[SILENT], oldest=[], **gone)
    text = words(found)
    assert text.startswith("1 problem needs a person")
    assert "No response for" in text
    assert "redis-0:6379" in text
    assert f"{HANDLER} ? ? ? \u2013 1 not known" in text
    assert "Last hour by" not in text
    assert 'aria-label="Dead letters by the hour:' in found


def test_a_database_that_does_not_answer_leaves_the_rest_of_the_page(page, console, monkeypatch):
    def gone(*_):
        raise DeskUnavailable("The dead letters' database (pg) could not be read: refused; start it.")

    monkeypatch.setattr("bridge.deadletters.inspection.letter_statistics.LetterTotals.counted", gone)
    text = words(page())
    assert text.startswith("1 problem needs a person")
    assert "The dead letters' database (pg) could not be read" in text
    assert "96 1 s ? runs" in text
    assert "Last day by the hour" in text


def test_where_the_database_keeps_every_page_back_it_is_said_what_runs_on_and_what_asks_none(browser, console):
    viewer = browser()
    console.desk.database.close()
    file = Path(console.desk.database.name.removeprefix("sqlite:///"))
    file.rename(file.with_suffix(".away"))
    file.mkdir()
    answer = viewer.get("/groups")
    assert answer.status_code == 503
    text = words(answer.text)
    assert "does not respond, so the sign-in cannot be checked" in text
    assert "bridges and workers run on" in text
    assert "<code><bdi>bridge status</bdi></code>" in answer.text


def test_a_silence_that_was_heard_of_long_ago_does_not_grow_by_itself(console, browser, monkeypatch):
    now = int(time.time() * 1000)
    old = GroupStatus(
        now - 240_000, status(unanswered=[SILENT]), {get_problem_subject(SILENT): now - 245_000}, time.monotonic() - 240
    )
    monkeypatch.setattr(console.status_cache, "read", lambda: old)
    assert "No response for 5 s at least." in words(browser().get("/").text)


def test_before_the_first_answer_the_page_comes_all_the_same(console, browser, monkeypatch):
    answered = threading.Event()
    console.status_cache = make_status_cache(lambda: status(group=answered.wait(20)))
    monkeypatch.setattr(console.status_cache, "within", 0.05)
    assert "Waiting for the status of the group" in browser().get("/").text
    answered.set()


def test_what_was_found_out_long_ago_is_shown_as_that_and_not_as_what_is_now(console, browser, monkeypatch):
    answered = threading.Event()
    console.status_cache = make_status_cache(lambda: status(group=answered.wait(20)))
    monkeypatch.setattr(console.status_cache, "within", 0.05)
    long_ago = GroupStatus(int(time.time() * 1000) - 240_000, status(), read=time.monotonic() - 240)
    monkeypatch.setattr(console.status_cache, "_kept", long_ago)
    assert "This is the status of 4 min ago." in browser().get("/").text
    monkeypatch.setattr(console.status_cache, "_kept", replace(long_ago, read=time.monotonic()))
    assert "This is the status of" not in browser().get("/").text
    answered.set()


def test_a_day_of_dead_letters_is_what_the_desk_has_recorded(page, record):
    now = int(time.time() * 1000)
    record(*(letter(at, failed_at=now) for at in range(3)), letter(9, failed_at=now - 3 * 3_600_000))
    found = page()
    assert "Dead letters by the hour: 4 in 24 hours, at most 3 in one, 3 in this one" in found
    assert "Attempts failed by the hour: 0 in 24 hours" in found
    assert f'<a href="/letters?handler={HANDLER}&amp;status=open">4</a>' in found


def test_letters_of_handlers_that_are_not_of_this_app_are_the_last_block(page, record):
    record(letter(1, handler="other.pay"), letter(2, handler="", origin="spring"))
    text = words(page())
    assert text.index("Other letters") > text.index(HANDLER)
    assert "other programs 1" in text


def test_of_many_handlers_that_are_not_of_this_app_those_with_most_letters_are_listed(page, record):
    record(*(letter(10 * of + at, handler=f"other.h{of}") for of in range(8) for at in range(of + 1)))
    text = words(page())
    assert text.index("other.h7 8") < text.index("other.h3 4") < text.index("3 more handlers 6")
    assert "other.h2" not in text


def test_a_handler_whose_attempts_fail_does_not_run_well(page):
    waits = Problem("x", "failing", "They wait", handler=HANDLER, since=5.0, many=3, of="deliveries")
    assert "3 deliveries wait since" in words(page(problems=[waits]))
    assert "fails since" in words(page(problems=[FAILS]))


def test_a_plan_that_applies_is_in_hand_so_that_nobody_does_it_twice(page, desk, record):
    record(letter(1))
    plan = desk.plans.make(PlanKind.ARCHIVE, LetterFilter(), PlanOptions(), "bob", "old ones")
    desk.plans.approve(plan.id, "bob")
    text = words(page())
    assert f"In progress: plan {plan.id} archives 1 letter: old ones 1 not touched" in text
    assert "bob applies it" in text


def test_who_may_only_read_has_no_button_that_acts_and_is_told_why(page):
    found = page(Role.VIEWER)
    assert "/topics/orders/halt" not in found
    assert "need the role operator" in found


def test_who_may_act_has_a_button_for_it(page):
    assert "/topics/orders/halt" in page(Role.OPERATOR)


def test_above_thirty_topics_those_that_are_well_are_counted(page, desk, monkeypatch):
    monkeypatch.setattr("bridge.console.pages.overview_page.MAX_LISTED_TOPICS", 0)
    assert "1 topic, of which 1 are healthy and not listed" in words(page())
    assert "not listed" not in words(page(path="/?show=all"))
    assert "not listed" not in words(page(workers={}))


def test_what_others_wrote_is_text_wherever_it_comes_from(page, record):
    record(letter(1, handler=hostile_input.TEXT.replace("\x00", "")))
    halts = {"orders": {"since": SINCE, "by": hostile_input.TEXT, "why": hostile_input.TEXT}}
    page(
        problems=[hostile_input.TEXT, f"`{hostile_input.TEXT}` and `bridge resume {hostile_input.TEXT}`"], halted=halts
    )


# How often it is asked


def group_of(looking):
    found = looking.read(20)
    assert found
    return found.status["group"]


def test_however_many_look_it_is_asked_by_one_and_not_again_while_nobody_looks(monkeypatch):
    monkeypatch.setattr("bridge.console.status_cache.IDLE_AFTER", 0.2)
    monkeypatch.setattr("bridge.console.status_cache.STATUS_PERIOD", 0.05)
    asks = []

    def ask():
        asks.append(threading.get_ident())
        return status()

    looking = make_status_cache(ask)
    readers = [threading.Thread(target=looking.read) for _ in range(20)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert len({*asks}) == 1
    eventually(lambda: not looking._runs, 10, "it ends")
    count = len(asks)
    assert looking.read() is not None
    eventually(lambda: len(asks) > count, 10, "it is asked anew")


@pytest.mark.slow
def test_after_something_was_changed_an_answer_from_before_is_not_shown():
    answers = iter(range(100))
    begun, go_on = threading.Event(), threading.Event()
    go_on.set()

    def ask():
        begun.set()
        go_on.wait(20)
        return status(group=next(answers))

    looking = make_status_cache(ask)
    assert group_of(looking) == 0
    begun.clear()
    go_on.clear()
    begun.wait(20)
    looking.forget()
    go_on.set()
    assert group_of(looking) == 2


def test_it_is_known_since_when_a_server_is_silent_although_its_words_change():
    now = iter(range(1_000, 1_100))
    errors = iter(f"Redis at r does not answer: error {number}" for number in range(100))
    reader = GroupStatusReader(
        lambda: status(problems=[(error := next(errors))], unanswered=[error]), lambda: next(now)
    )
    first, second = reader.read_status(), reader.read_status()
    assert first.at < second.at
    assert [*second.silent.values()] == [first.at] == [*first.silent.values()]


def test_how_old_a_look_is_nobody_changes_who_sets_the_clock():
    wall = [1_000_000.0]
    reader = GroupStatusReader(status, lambda: wall[0])
    found = reader.read_status()
    for jump in (-86_400, 2 * 86_400):
        wall[0] += jump
        assert not found.is_old
    assert replace(found, read=time.monotonic() - 11).is_old


def test_a_fault_in_asking_ends_nothing(caplog, monkeypatch):
    monkeypatch.setattr("bridge.console.status_cache.STATUS_PERIOD", 0.01)
    asks = iter([ZeroDivisionError(), None])

    def ask():
        if error := next(asks, None):
            raise error
        return status()

    looking = make_status_cache(ask)
    assert eventually(looking.read, 10).status["group"] == "shop"
    assert "cannot read the status of the group" in caplog.text


def test_what_it_shows_is_what_bridge_status_answers_of_the_servers(stack: Stack):
    stack.make_topics("orders")
    stack.produce("orders", 1, 2)
    with desk_of(stack, "orders") as desk:
        name = stack.topic("orders")
        halt_topics(desk.app, desk.settings, desk.routes, [name], "the bank books twice", "ann")
        found = read_group_status(desk, RecentDeadLetters(desk.settings))
        assert [problem for problem in found["problems"] if "is halted" in problem]
        made = Console(desk, "shop")
        with signed_in(made, Role.OPERATOR) as client:
            text = words(eventually(lambda: t if "is halted" in (t := client.get("/").text) else None, 20))
        assert f"Topic '{name}' is halted" in text
        assert f"{name} 1 partition 2" in text
        assert "the bank books twice" in text


# While it is open


@pytest.fixture
def snapshot(console):
    """What an open page is told of a status."""

    def of(**other):
        console.status_cache = make_status_cache(lambda: status(**other))
        return overview_page.watch_overview(console, "")()

    return of


def test_an_open_page_is_told_its_numbers_and_each_has_a_place_in_it(page, snapshot):
    found = page()
    told_ = snapshot(workers={"w": {**WORKER, "holds": {"q": {HANDLER: 97}}}})
    assert told_.parts[overview_page.PLACE("orders", HANDLER, "in flight")] == "97"
    assert told_.parts["o-heading"] == "Nothing needs a person"
    assert told_.parts[overview_page.PLACE("orders", HANDLER, "rate")] == "2"
    assert "Handled by the minute: 213" in told_.parts["o-hour"]
    for place in told_.parts:
        assert found.count(f'id="{place}"') == 1, place
    assert f'data-act="{told_.act}"' in found
    assert not told_.over


def test_an_open_page_is_told_that_it_lists_the_past_when_a_problem_comes_and_not_when_it_gets_older(page, snapshot):
    values = {**HALTED.__dict__}
    older = Problem(HALTED.replace("(49 min)", "(50 min)"), **{**values, "many": 99_413})
    elsewhere = Problem(HALTED.replace("orders", "refunds"), **{**values, "topic": "refunds"})
    found = page(problems=[HALTED])
    assert f'data-act="{snapshot(problems=[older]).act}"' in found
    for other in ({}, {"problems": [HALTED, SILENT]}, {"problems": [elsewhere]}):
        assert f'data-act="{snapshot(**other).act}"' not in found


def test_there_is_one_overview_to_watch(browser):
    assert browser().get("/events?of=overview-2").status_code == 404


def test_what_others_wrote_is_text_in_live_parts_too(snapshot, record):
    record(letter(1))
    halts = {"orders": {"since": SINCE, "by": hostile_input.TEXT, "why": hostile_input.TEXT}}
    workers = {"w": {**WORKER, "started": SINCE, "handler_versions": {HANDLER: hostile_input.TEXT}}}
    found = {**counts(), "minutes": {**counts()["minutes"], "from": SINCE}}
    for html in snapshot(problems=[hostile_input.TEXT], halted=halts, workers=workers, counts=[found]).parts.values():
        hostile_input.check(html.replace("<text ", "<b "))
