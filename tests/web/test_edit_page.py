"""What is promised of an edit: what was shown is what is sent, nothing else changes, and its handler would take it."""

import re
from html import unescape

import pytest

from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.model.bulk_plan import PlanState
from tests.desk import rows
from tests.desk.letters import letter
from tests.web import hostile_input


def written(page):
    """What a browser has in the field: of the line break behind the tag it makes nothing."""
    (found,) = re.findall(r"<textarea[^>]*name=\"value\"[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    return unescape(found)


def hidden(page):
    return dict(re.findall(r'<input type="hidden" name="(shown|token)" value="([^"]*)"', page))


def sent(desk, plan_id):
    with desk.database.reading() as connection:
        return rows.edits_of(connection, plan_id)


def checked(here, value, id_=1):
    """The page after Check it, as a browser without a script has it; it sends line breaks as CR LF."""
    form = {"token": here.token, "value": value.replace("\n", "\r\n"), "do": "check"}
    return here.post(f"/letters/{id_}/edit", data=form).text


def send(here, value, page, id_=1, **other):
    form = {"token": here.token, "value": value.replace("\n", "\r\n"), "do": "send", **hidden(page), **other}
    return here.post(f"/letters/{id_}/edit", data=form)


def test_a_value_is_edited_checked_shown_as_a_difference_and_sent_in_the_background(browser, record, desk):
    record(letter(1, value=b'{"amount":"12,5O","trace":9007199254740993,"rate":1.10}'))
    here = browser()
    value = written(here.get("/letters/1/edit").text)
    assert value == '{\n  "amount": "12,5O",\n  "trace": 9007199254740993,\n  "rate": 1.10\n}'
    page = checked(here, value.replace('"12,5O"', "1250"))
    assert "It validates." in page
    assert "<del>" in page
    assert "Replay 1 letter with 1 change</button>" in page
    answer = send(here, written(page), page, why="letter O instead of zero")
    assert answer.status_code == 303
    plan = desk.plans.one(int(answer.headers["location"].removeprefix("/plans/")))
    assert plan.state is PlanState.APPLYING
    assert sent(desk, plan.id) == {1: b'{"amount":1250,"trace":9007199254740993,"rate":1.10}'}
    trail = here.get("/letters/1").text
    assert "letter O instead of zero" in trail
    assert "ann" in trail


def test_what_validates_not_is_sent_only_with_a_reason_and_where_that_is_said(browser, record, desk):
    record(letter(1, value=b'{"amount":1}'))
    here = browser()
    page = checked(here, '{"amount": "none"}')
    assert "Its handler would refuse it." in page
    assert 'name="force"' in page
    for other in ({}, {"force": "on"}, {"why": "they know"}):
        answer = send(here, '{"amount": "none"}', page, **other)
        assert answer.status_code == 400
        assert "only with a reason" in answer.text
        assert written(answer.text) == '{"amount": "none"}'
    assert desk.plans.latest() == []
    answer = send(here, '{"amount": "none"}', page, force="on", why="they know")
    assert answer.status_code == 303
    assert sent(desk, 1) == {1: b'{"amount":"none"}'}


def test_only_what_was_shown_with_its_difference_is_sent(browser, record, desk):
    record(letter(1, value=b'{"amount":1}'))
    here = browser()
    page = checked(here, '{"amount": 2}')
    answer = send(here, '{"amount": 3}', page)
    assert answer.status_code == 200
    assert desk.plans.latest() == []
    assert written(answer.text) == '{"amount": 3}'
    assert send(here, '{"amount": 3}', answer.text).status_code == 303
    assert sent(desk, 1) == {1: b'{"amount":3}'}


def test_nothing_that_is_unchanged_is_sent(browser, record, desk):
    record(letter(1, value=b'{"amount" : 1}'))
    here = browser()
    page = checked(here, written(here.get("/letters/1/edit").text))
    assert "Nothing is changed yet." in page
    assert 'value="send"' not in page
    assert desk.plans.latest() == []


def test_a_script_asks_for_the_parts_alone_and_nothing_is_sent(browser, record, desk):
    record(letter(1, value=b'{"amount":1}'))
    here = browser()
    answer = here.post("/letters/1/check", data={"token": here.token, "value": '{"amount": "x"}'})
    assert re.findall(r'id="(e-[a-z]+)"', answer.text) == ["e-says", "e-difference", "e-send"]
    assert "Its handler would refuse it." in answer.text
    assert "<html" not in answer.text
    assert desk.plans.latest() == []


def test_who_comes_too_late_is_told_and_what_was_typed_is_still_there(browser, record, desk):
    record(letter(1, value=b'{"amount":1}'))
    here = browser()
    page = checked(here, '{"amount": 2}')
    with desk.database.writing() as connection:
        connection.exec_driver_sql("UPDATE letters SET status = 'resolved'")
    answer = send(here, '{"amount": 2}', page, why="mine")
    assert answer.status_code == 409
    assert "Letter 1: it is resolved by now" in answer.text
    assert written(answer.text) == '{"amount": 2}'
    assert 'value="mine"' in answer.text
    assert here.get("/letters/1/edit").status_code == 409


def test_characters_that_a_browser_does_not_show_are_escapes_in_json_and_come_back_as_they_were(browser, record, desk):
    value = '{"amount":1,"name":"a\u202eb\u200d\U000e0041","esc":"\\u001b"}'
    record(letter(1, value=value.encode()))
    here = browser()
    shown = written(here.get("/letters/1/edit").text)
    assert r"a\u202eb\u200d\udb40\udc41" in shown
    assert "Nothing is changed yet." in checked(here, shown)
    page = checked(here, shown.replace("1,", "2,", 1))
    assert send(here, written(page), page).status_code == 303
    assert sent(desk, 1) == {1: value.replace("1,", "2,", 1).encode()}


def test_text_that_is_no_json_keeps_its_line_breaks(browser, record, desk):
    record(letter(1, value=b"one\n\ttwo\n"))
    here = browser()
    assert written(here.get("/letters/1/edit").text) == "one\n\ttwo\n"
    page = checked(here, "one\n\tthree\n")
    assert send(here, "one\n\tthree\n", page, force="on", why="as they want it").status_code == 303
    assert sent(desk, 1) == {1: b"one\n\tthree\n"}


def test_a_line_break_at_the_end_is_a_change_too(browser, record):
    record(letter(1, value=b"one\n"))
    page = checked(browser(), "one")
    assert "with 1 change</button>" in page
    assert "Only the line breaks at its end." in page


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\xff\x00", "This value is no text"),
        (b"one\r\ntwo", "characters that a browser does not keep"),
        (b"one\x1b[31m", "characters that a browser does not keep"),
        (b"a" * 500_000, "too large for a form"),
    ],
)
def test_what_a_form_would_change_is_edited_elsewhere(browser, record, value, words):
    record(letter(1, value=value))
    answer = browser().get("/letters/1/edit")
    assert answer.status_code == 409
    assert words in answer.text
    assert "bridge deadletters edit" in answer.text


def test_a_value_too_large_for_the_database_is_not_offered_as_an_empty_one(browser, record):
    record(letter(1, value=b"large"), largest=3)
    assert browser().get("/letters/1/edit").status_code == 409


def test_an_edit_is_harmless_whatever_stands_in_it(browser, record):
    said = hostile_input.UNSEEN.sub("", hostile_input.TEXT).replace('"', "'") + "\u202e\u2066\u200b\ufeff"
    value = f'{{"a": "{said}"}}'
    record(letter(1, value=value.encode(), error_message=hostile_input.TEXT, handler=hostile_input.TEXT))
    here = browser()
    page = here.get("/letters/1/edit").text
    hostile_input.check(page)
    for typed in (hostile_input.TEXT, written(page).replace("alert(1)", "alert(3)"), '{"<b>": "\x00\x1b"}'):
        hostile_input.check(checked(here, typed))
        hostile_input.check(here.post("/letters/1/check", data={"token": here.token, "value": typed}).text)


def test_a_viewer_cannot_edit(browser, record):
    record(letter(1, value=b"{}"))
    here = browser(Role.VIEWER)
    assert here.get("/letters/1/edit").status_code == 403
    assert here.post("/letters/1/check", data={"token": here.token, "value": "1"}).status_code == 403
    assert send(here, "1", "").status_code == 403
