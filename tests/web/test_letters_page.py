"""What is promised of the list of letters: the filter is in its address, and it is as quick with many as with few."""

import inspect
import re
from html import unescape
from typing import Any

import pytest
from markupsafe import escape
from sqlalchemy import event
from starlette.datastructures import QueryParams

from bridge.cli.deadletters.filter_options import with_filter_options
from bridge.console import filter_address, template_filters
from bridge.console.api.schemas import letters_schema
from bridge.console.pages import letters_page
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import plan_item_rows
from bridge.deadletters.db.filter_sql import build_letter_conditions
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.deadletters.model.bulk_plan import PlanKind
from bridge.deadletters.model.filter_syntax import FLAG, HEADERS, SINCE, UNTIL, VALUE_FIELDS
from bridge.deadletters.model.letter_filter import ALL_LETTERS, FILTER_FIELDS, LetterFilter
from bridge.errors import FilterFault
from bridge.settings.masked_fields import read_mask_rules
from tests.desk.letters import HANDLER, letter
from tests.web import hostile_input

#: Pages, with the rest of the command at their foot.
PATHS = {
    "/letters?key=x": "deadletters list --key x --status open",
    "/plans": "deadletters plans",
    "/audit": "audit TOPIC",
    "/": "status",
}


#: Texts for fields of which "7" is none.
SAMPLES = {FLAG: "yes", HEADERS: "a=7", VALUE_FIELDS: "a=7", SINCE: "2h", UNTIL: "2h"}


def records(page):
    return re.findall(r'<a href="/letters/\d+[^"]*"><bdi>orders</bdi>-0-(\d+)', page)


def linked(page, words):
    (found,) = re.findall(rf'<a [^>]*href="([^"]*)"[^>]*>{words}</a>', page)
    return unescape(found)


def titled(page):
    (found,) = re.findall(r"<h1>(.*?)</h1>", page, re.DOTALL)
    return re.sub(r"<[^>]+>", "", found).strip()


def test_the_list_is_the_open_letters_newest_first_with_their_number(browser, record):
    record(*(letter(at, failed_at=1_000 * at) for at in (1, 2, 3)))
    page = browser().get("/letters").text
    assert records(page) == ["3", "2", "1"]
    assert titled(page) == "3 letters match"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("handler=other.pay", ["2"]),
        ("reason=permanent", ["3"]),
        ("exception=KeyError", ["4"]),
        ("key=k5", ["5"]),
        ("text=broken", ["6"]),
        ("header=tenant%3Dacme", ["7"]),
        ("version=1.4.2", ["8"]),
        ("id=1&id=2", ["2", "1"]),
        ("handler=other.pay&handler=nobody", ["2"]),
        ("since=1970-01-01T00:00:08&until=1970-01-01T00:00:09", ["8"]),
        ("status=resolved", []),
        ("topic=orders&status=any&reason=permanent", ["3"]),
        ("origin=bridge&reason=permanent", ["3"]),
        ("group=1&key=k5", ["5"]),
    ],
)
def test_each_filter_of_the_command_line_is_one_of_the_address(browser, record, said, found):
    others: list[dict[str, Any]] = [
        {},
        {"handler": "other.pay"},
        {"reason": "permanent"},
        {"error_class": "KeyError"},
        {"key": b"k5"},
        {"error_message": "it is broken"},
        {"headers": (("tenant", b"acme"),)},
        {"version": "1.4.2"},
    ]
    record(*(letter(at, failed_at=1_000 * at, **other) for at, other in enumerate(others, 1)))
    answer = browser().get(f"/letters?{said}")
    assert answer.status_code == 200
    assert records(answer.text) == found


def test_what_the_command_line_says_at_the_foot_is_the_same_filter(browser, record):
    page = browser().get("/letters?handler=other.pay&key=a b&status=any").text
    assert "bridge deadletters list --handler other.pay --key &#39;a b&#39;" in page


def test_the_command_at_the_foot_begins_as_it_is_typed_where_the_console_runs(new_site):
    for said in ("docker compose exec console bridge", "/tmp/<demo>/bridge"):
        page = new_site(DEADLETTERS_CONSOLE_COMMAND=said).signed_in(Role.VIEWER).get
        foot = {path: re.findall(r"<code>(.*?)</code>", page(path).text.rpartition("<footer")[2])[0] for path in PATHS}
        plain = {path: unescape(each).replace("<bdi>", "").replace("</bdi>", "") for path, each in foot.items()}
        assert plain == {path: f"{said} {rest}" for path, rest in PATHS.items()}
        assert "<demo>" not in "".join(foot.values())


def test_a_filter_that_is_none_is_refused_with_what_is_wrong(browser):
    for said in (
        "status=lost",
        "since=never",
        "key=0xzz",
        "group=x",
        "header=none",
        "before=x",
        "after=9-",
        "id=" + "9" * 50,
        "&".join(f"exception=E{each}" for each in range(400)),
    ):
        answer = browser().get(f"/letters?{said}")
        assert answer.status_code == 400, said
    assert "There is no status" in browser().get("/letters?status=lost").text


def test_a_filter_with_a_mistake_keeps_what_was_typed(browser):
    answer = browser().get("/letters?since=yesterdya&key=k7&header=a%3Db&status=any&rows=25")
    assert answer.status_code == 400
    assert "&#39;yesterdya&#39; is no time" in answer.text
    for name, value in {"since": "yesterdya", "key": "k7", "header": "a=b", "rows": "25"}.items():
        assert re.search(rf'name="{name}" value="{value}"', answer.text), name
    assert "<option selected>any</option>" in answer.text


def test_older_and_newer_pages_lead_over_all_letters_and_back(browser, record):
    record(*(letter(at, failed_at=1_000 + at // 3) for at in range(120)))
    here, seen = browser(), []
    pages = ["/letters?rows=25"]
    while True:
        page = here.get(pages[-1]).text
        seen += records(page)
        if 'rel="next"' not in page:
            break
        pages.append(linked(page, "Older"))
    assert seen == [str(at) for at in sorted(range(120), key=lambda at: (at // 3, at), reverse=True)]
    assert "No older ones." in page
    for expected in reversed(range(1, len(pages) - 1)):
        page = here.get(linked(page, "Newer")).text
        assert records(page) == seen[25 * expected : 25 * expected + 25]
    answer = here.get(linked(page, "Newer"))
    if answer.status_code == 303:
        answer = here.get(answer.headers["location"])
    assert records(answer.text) == seen[:25]


def test_the_way_back_from_a_page_of_a_filter_skips_what_is_not_of_it(browser, record):
    record(*(letter(at, failed_at=1_000 + at, reason="permanent" if at % 2 else "exhausted") for at in range(120)))
    here = browser()
    first = here.get("/letters?reason=permanent&rows=25").text
    second = here.get(linked(first, "Older")).text
    third = here.get(linked(second, "Older")).text
    assert records(here.get(linked(third, "Newer")).text) == records(second)


def test_a_column_that_the_filter_makes_the_same_for_all_is_left_out(browser, record):
    record(letter(1))
    assert ">Handler</th>" in browser().get("/letters").text
    page = browser().get(f"/letters?handler={HANDLER}&reason=exhausted&key=k").text
    assert records(page) == ["1"]
    assert not [name for name in ("Handler", "Reason", "Key") if f">{name}</th>" in page]


def test_an_operator_may_tick_letters_and_choose_what_is_done_with_them(browser, record):
    record(letter(1), letter(2))
    page = browser().get("/letters?reason=exhausted").text
    assert re.findall(r'name="ids" value="(\d+)"', page) == ["2", "1"]
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    assert ("reason", "exhausted") in hidden
    assert ("status", "open") in hidden
    assert ("seen", "2") in hidden
    assert re.findall(r'name="what" value="(\w+)"', page) == ["replay", "patch", "archive", "discard"]


def test_a_viewer_has_no_ticks_and_reads_which_role_is_needed(browser, record):
    record(letter(1))
    page = browser(Role.VIEWER).get("/letters").text
    assert 'name="ids"' not in page
    assert 'name="what"' not in page
    assert "need the role operator" in page


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_the_letters_of_a_filter_leave_as_lines_of_json_and_the_trail_says_who_took_them(browser, record, desk, role):
    record(letter(1), letter(2, reason="poison"), letter(3, reason="poison"))
    person = browser(role)
    forms = re.findall(r'<form method="post".*?</form>', person.get("/letters?reason=poison").text, re.DOTALL)
    (form,) = [each for each in forms if "/letters/export" in each]
    fields = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)) | {"scope": "filter"}
    answer = person.post("/letters/export", data=fields)
    assert 'filename="letters.jsonl"' in answer.headers["content-disposition"]
    assert answer.headers["cache-control"] == "no-store"
    taken = desk.transfers.take(answer.content.splitlines(), "kim", "letters.jsonl")
    assert (taken.known, taken.refused) == (2, 0)
    assert "2 letters: reason poison, status open" in person.get("/activity?did=export,+import").text


def test_letters_that_are_ticked_leave_alone_and_who_ticks_none_is_told_so(browser, record):
    record(letter(1), letter(2))
    person = browser()
    answer = person.post("/letters/export", data={"token": person.token, "scope": "ids", "ids": "2", "status": "open"})
    assert answer.text.count("\n") == 2
    refused = person.post("/letters/export", data={"token": person.token, "scope": "ids", "status": "open"})
    assert (refused.status_code, "No letter is ticked" in refused.text) == (400, True)


def test_what_a_form_of_the_list_means_is_its_ticks_or_its_filter():
    form = QueryParams("scope=ids&ids=3&ids=4,5&reason=permanent&status=open&token=t&seen=9")
    assert filter_address.read_chosen_filter(form) == LetterFilter(ids=(3, 4, 5))
    form = QueryParams("scope=filter&ids=3&reason=permanent&token=t")
    assert filter_address.read_chosen_filter(form) == LetterFilter(reasons=("permanent",))


def test_an_empty_list_says_of_what_and_how_many_there_are_without_the_filter(browser, record):
    page = browser().get("/letters").text
    assert "nothing was recorded here yet" in page
    record(letter(1), letter(2))
    page = browser().get("/letters?handler=orders.handlers.charg").text
    assert titled(page) == "No letter matches"
    assert "is &#39;orders.handlers.charge&#39; meant?" in page
    assert "2 letters</a>" in page


def test_a_page_behind_the_last_letter_says_no_more_and_not_none(browser, record):
    record(letter(1))
    page = browser().get("/letters?before=1-1").text
    assert "There are no more letters of this filter." in page


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders.handlers.charge", "<bdi>orders.handlers.charge</bdi>"),
        ("shop.demo.examples.orders.handlers.charge", "…<bdi>orders.handlers.charge</bdi></span>"),
        ("x" * 60, f"…<bdi>{'x' * 28}</bdi></span>"),
        ("shop.demo.examples.<script>.charge", "…<bdi>examples.&lt;script&gt;.charge</bdi></span>"),
    ],
)
def test_a_long_name_of_a_handler_is_shown_by_its_end(name, shown):
    found = str(template_filters.ending(name, 28))
    assert found.endswith(shown)
    assert found.startswith("<bdi>") or f'title="{escape(name)}"' in found


def test_what_letters_say_is_harmless_in_the_list(browser, record):
    record(
        letter(
            1,
            key=hostile_input.BYTES,
            error_message=hostile_input.TEXT,
            error_class=hostile_input.TEXT,
            version=hostile_input.TEXT,
        ),
        letter(
            2,
            key=hostile_input.TEXT.encode(),
            handler=hostile_input.TEXT,
            reason=hostile_input.TEXT,
            place=hostile_input.TEXT,
        ),
    )
    page = browser().get("/letters").text
    assert len(records(page)) == 2
    hostile_input.check(page)


def test_what_an_address_says_is_harmless_in_its_page(browser):
    for field in FILTER_FIELDS:
        answer = browser().get("/letters", params={field.word: hostile_input.TEXT})
        hostile_input.check(answer.text)


def test_a_page_of_ten_thousand_letters_takes_what_one_of_a_hundred_takes(browser, record, desk):
    addresses = (
        "/letters",
        "/letters?status=any",
        f"/letters?handler={HANDLER}&since=1970-01-01",
        "/letters?before=5500-999999",
        "/letters?after=5500-1",
        "/letters/50",
    )

    def asked_of_the_database():
        statements, here = [], browser()
        for address in addresses:
            some = []
            listen = lambda *found: some.append(found[2])  # noqa: E731, B023
            event.listen(desk.database._engine, "before_cursor_execute", listen)
            answer = here.get(address)
            event.remove(desk.database._engine, "before_cursor_execute", listen)
            assert answer.status_code in (200, 303), address
            assert len(answer.text) < 200_000, address
            statements.append(some)
        return statements

    record(*(letter(at, failed_at=5_000 + 10 * at) for at in range(100)))
    few = asked_of_the_database()
    record(*(letter(at, failed_at=5_000 + at % 1_000) for at in range(100, 10_000)))
    many = asked_of_the_database()
    for address, before, after in zip(addresses, few, many, strict=True):
        assert len(after) <= len(before), (address, after)
        unbounded = [
            each for each in after if "FROM letters" in each and "LIMIT" not in each and "letters.id" not in each
        ]
        assert not unbounded, (address, unbounded)


def test_letters_are_found_by_plan_attempts_and_whether_they_died_again(console, browser, record):
    record(letter(1), letter(2, runs=3), letter(3))
    record(letter(3, offset=99, failed_at=20_000))
    made = console.desk.plans.draft(PlanKind.ARCHIVE, LetterFilter(ids=(2,)), "kim")
    here = browser()
    for said, found in (
        (f"plan={made.id}", ["2"]),
        ("plan=999", []),
        ("attempts=13", ["3", "1"]),
        ("died-again=yes", ["3"]),
    ):
        assert records(here.get(f"/letters?{said}").text) == found, said
    page = here.get("/letters?died-again=yes&attempts=2").text
    assert "bridge deadletters list --died-again --attempts 2 --status open" in page
    assert 'name="died-again" value="yes" checked' in page
    for said in ("attempts=0", "attempts=x", "died-again=no", "plan=x"):
        assert here.get(f"/letters?{said}").status_code == 400, said


def test_a_plan_has_the_letters_that_died_again_and_no_others(console, browser, record):
    record(letter(1), letter(2))
    record(letter(2, offset=99, failed_at=20_000))
    found = console.desk.plans.draft(PlanKind.ARCHIVE, LetterFilter(died_again=True), "kim")
    assert found.asked["died_again"] is True
    assert found.counts.letters == 1


def test_a_list_that_is_open_is_told_how_many_have_come_and_of_no_others(console, browser, record):
    record(letter(1), letter(2, failed_at=20_000))
    here = browser()
    page = here.get("/letters?reason=exhausted&rows=25").text
    (of,) = re.findall(r'data-live="letters-([^"]*)"', page)
    made = letters_page.watch_letters(console, unescape(of), NO_MASKS)
    assert made().parts == {"l-more": ""}
    record(letter(3, failed_at=20_001), letter(4, failed_at=20_002, reason="permanent"), letter(5, failed_at=5))
    assert made().parts["l-more"].startswith("1 new letter. ")
    record(*(letter(at, failed_at=20_002) for at in range(6, 120)))
    said = made().parts["l-more"]
    assert said.startswith("100 or more new letters. ")
    assert unescape(re.findall(r'href="([^"]*)"', said)[0]) == "/letters?reason=exhausted&rows=25&status=open"
    assert made().act == ""


def test_only_the_newest_page_of_a_list_is_live(console, browser, record):
    record(*(letter(at, failed_at=1_000 + at) for at in range(60)))
    here = browser()
    page = here.get("/letters?rows=25").text
    assert "data-live" in page
    assert "data-live" not in here.get(linked(page, "Older")).text
    assert "data-live" not in here.get("/letters?key=nobody").text


def test_what_is_no_list_is_not_live_nor_one_by_what_is_masked(console, browser):
    for said in ("letters-", "letters-x?status=open", "letters-1-1?status=lost", "letters-1-1?key=0xzz"):
        assert browser().get("/events", params={"of": said}).status_code == 400, said
    with pytest.raises(FilterFault):
        letters_page.watch_letters(console, "1-1?text=zebra", LetterMasks(read_mask_rules("*: card")))


@pytest.mark.parametrize("field", FILTER_FIELDS, ids=lambda field: field.word)
def test_each_field_of_the_table_is_an_option_a_parameter_an_input_json_and_a_condition(browser, field):
    text = field.choices[0] if field.choices else SAMPLES.get(field.type, "7")
    asked = LetterFilter(**{field.name: field.type.parse([text], 1e9)})
    assert LetterFilter.from_data(asked.to_data()) == asked != ALL_LETTERS
    assert build_letter_conditions(asked, among=[1] if asked.values else None)
    assert f'name="{field.word}"' in browser().get("/letters").text
    assert field.word.replace("-", "_") in letters_schema.Filter.model_fields

    def command(chosen: LetterFilter) -> None: ...

    options = inspect.signature(with_filter_options()(command)).parameters
    assert (field.name if field.name == "ids" else (field.option or field.word).replace("-", "_")) in options


def test_each_value_of_a_filter_is_taken_off_by_itself_and_times_are_a_click(browser):
    page = browser().get("/letters?handler=shop.charge&handler=shop.other&since=1h&before=5-1").text
    chips = dict(re.findall(r'<li><a href="([^"]*)">(\w[\w ]* <b>.*?</b>)', page))
    assert [re.sub("<[^>]*>", "", words) for words in chips.values()] == [
        "Handler shop.charge",
        "Handler shop.other",
        "Failed since 1h",
        "Status open",
    ]
    assert [*chips] == [
        "/letters?handler=shop.other&amp;since=1h&amp;status=open",
        "/letters?handler=shop.charge&amp;since=1h&amp;status=open",
        "/letters?handler=shop.charge&amp;handler=shop.other&amp;status=open",
        "/letters?handler=shop.charge&amp;handler=shop.other&amp;since=1h&amp;status=any",
    ]
    assert '<a href="/letters?handler=shop.charge&amp;handler=shop.other&amp;since=24h">24 h</a>' in page
    assert re.search(r'since=1h" aria-current="true">1 h</a>', page)
    assert '<a href="/letters?handler=shop.charge&amp;handler=shop.other">any time</a>' in page


def test_an_address_names_a_field_of_the_value_and_a_header_with_a_dot(browser, record):
    values = [b'{"order": {"currency": "%s"}}' % each for each in (b"EUR", b"CHF", b"EUR")]
    record(*(letter(at, value=value, headers=(("tenant", b"%d" % at),)) for at, value in enumerate(values)))
    client = browser()
    found = client.get("/letters?value.order.currency=EUR").text
    assert "2 letters match" in found
    assert "orders-0-1" not in found
    assert "Field of the value <b>" in found
    assert '<input type="hidden" name="value" value="order.currency=EUR">' in found
    assert "bridge deadletters list --value order.currency=EUR --status open" in unescape(found)
    assert "1 letter matches" in client.get("/letters?value.order.currency=EUR&header.tenant=2").text


def test_a_plan_of_a_value_s_field_has_the_letters_that_the_list_shows(browser, record, desk):
    record(*(letter(at, value=b'{"ok": %s}' % (b"true", b"false")[at % 2]) for at in range(6)))
    client = browser()
    assert "3 letters match" in client.get("/letters?value.ok=true").text
    said = {"token": client.token, "what": "archive", "scope": "filter", "value": "ok=true", "status": "open"}
    assert client.post("/plans/new", data=said).status_code == 303
    (plan,) = desk.plans.latest()
    assert (plan.counts.letters, plan.asked["values"]) == (3, [["ok", "true"]])
    with desk.database.reading() as connection:
        taken = {item.letter_id for item in plan_item_rows.read_items(connection, plan.id, 0, 9)}
    assert taken == {each.id for each in desk.letters.each(LetterFilter(values=(("ok", "true"),)))}
    assert "value ok=true" in client.get(f"/plans/{plan.id}").text


def test_a_letter_that_cannot_be_searched_by_value_is_said_to_be_left_out(browser, record):
    record(letter(0, value=b'{"ok": true, "text": "' + b"x" * 70_000 + b'"}'), letter(1, value=b'{"ok": true}'))
    client = browser()
    assert "1 letter was not searched: its value is larger than 64 KiB" in client.get("/letters?value.ok=true").text
    said = {"token": client.token, "what": "archive", "scope": "filter", "value": "ok=true"}
    refused = client.post("/plans/new", data=said)
    assert refused.status_code == 400
    assert "1 of these 2 letters cannot be searched by value" in refused.text
