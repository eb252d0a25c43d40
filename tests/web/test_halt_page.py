"""What is promised of deciding in the console: topics are halted and resumed, policies changed, with a reason."""

import re
import time
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from celery import Celery

from bridge.console.console import Console
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.handler_routes import Handler, Routes
from bridge.operator_actions.handler_halt import read_handler_halts
from bridge.operator_actions.handler_policy import read_policies
from bridge.operator_actions.topic_halt import halt_topics, read_halts, resume_topics
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.desk.letters import HANDLER, letter
from tests.processes import Stack, stack
from tests.servers.process import free_port
from tests.web import hostile_input
from tests.web.conftest import signed_in
from tests.web.status_answer import status

__all__ = ["stack"]


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


def desk_on(stack: Stack, **other: Any) -> Iterator[DeadLetterService]:
    """A desk of the stack's servers with one handler, whose policy its code says."""
    url = f"sqlite:///{stack.folder}/letters.db"
    made = EnvironmentSettings(DEADLETTERS_DATABASE_URL=url, BRIDGE_GROUP=stack.environ["BRIDGE_GROUP"])
    said = {"kafka": {"bootstrap.servers": stack.kafka}, "broker": stack.broker, **other}
    settings = Settings(FileSettings(), made, said["broker"], said["kafka"])
    transport = "lossless.transport:Transport"
    with Celery("shop", broker=said["broker"], broker_transport=transport, set_as_current=False) as app:
        app.conf.update(DEFAULTS)

        def charge(order: Any) -> None:
            raise AssertionError("it runs")

        topic = stack.topic("orders")
        declare_handler(app, (topic,), {"name": HANDLER, "max_retries": 12})(charge)
        routes = Routes({HANDLER: Handler(HANDLER, (topic,), "q", 1, 0.0)})
        with DeadLetterService.opened(app, settings, routes) as opened:
            yield opened


@pytest.fixture
def desk(stack: Stack) -> Iterator[DeadLetterService]:
    """On real servers."""
    stack.make_topics("orders")
    yield from desk_on(stack)


@pytest.fixture
def console(desk: DeadLetterService) -> Console:
    """Over it; how the group stands is data."""
    made = Console(desk, "shop")
    made.status_cache = make_status_cache(status)
    return made


@pytest.fixture
def ann(console: Console) -> Iterator[Any]:
    """An operator's browser."""
    with signed_in(console, Role.OPERATOR) as client:
        yield client


def send(client: Any, path: str, **form: str) -> Any:
    """Send the form of a page, as a browser does: with what is hidden in it."""
    page = client.get(path).text
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page[page.index("<main") :])
    return client.post(path, data={**{name: unescape(value) for name, value in hidden}, **form})


def topics(desk: DeadLetterService) -> dict[str, Any]:
    return read_halts(desk.settings)


def test_a_topic_is_halted_and_resumed_with_a_reason_that_everybody_sees(ann, desk):
    (topic,) = desk.routes.topics
    page = ann.get(f"/topics/{topic}/halt").text
    assert words(page).startswith(f"Overview {topic} {topic} is not halted")
    assert "It stays halted through restarts" in page
    answer = send(ann, f"/topics/{topic}/halt", why="the bank books twice")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/topics/{topic}/resume")
    found = topics(desk)[topic]
    assert (found["by"], found["why"]) == ("ann", "the bank books twice")
    page = words(ann.get(answer.headers["location"]).text)
    assert f"{topic} is halted" in page
    assert "by ann : the bank books twice" in page

    answer = send(ann, f"/topics/{topic}/resume", why="the bank is mended")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/topics/{topic}/halt")
    assert topics(desk) == {}
    trail = [(each.by, each.what, each.said) for each in desk.trail.page(EntryFilter(what=("halt", "resume"))).entries]
    assert trail == [
        ("ann", "resume", f"resumed {topic}: the bank is mended"),
        ("ann", "halt", f"halted {topic}: the bank books twice"),
    ]


def undo(client: Any, path: str) -> tuple[str, Any]:
    """Press the button of the opposite act, which the page after an act has; return what was said, and the answer."""
    page = client.get(path).text
    form = re.search(r'<div class="say is-good done".*?</div></div>', page, re.S)
    assert form, words(page)
    address = re.findall(r'action="([^"]*)"', form[0])[0]
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form[0])
    said = " ".join(unescape(re.sub(r"<[^>]+>", " ", form[0])).split())
    return said, client.post(unescape(address), data={name: unescape(value) for name, value in fields})


def test_what_was_halted_is_said_with_a_button_that_resumes_it_and_the_other_way_round(ann, desk):
    (topic,) = desk.routes.topics
    send(ann, f"/topics/{topic}/halt", why="the bank books twice")
    said, answer = undo(ann, f"/topics/{topic}/resume")
    assert (said, answer.status_code) == (f"Halted {topic}. Resume", 303)
    assert topics(desk) == {}
    said, answer = undo(ann, answer.headers["location"])
    assert (said, answer.status_code) == (f"Resumed {topic}. Halt it again", 303)
    found = topics(desk)[topic]
    assert (found["by"], found["why"]) == ("ann", "taken back: the bank books twice")
    resume_topics(desk.app, desk.settings, desk.routes, [topic], "mine", "bob")
    halt_topics(desk.app, desk.settings, desk.routes, [topic], "it burns", "bob")
    said, answer = undo(ann, answer.headers["location"])
    assert (said, answer.status_code) == (f"Halted {topic}. Resume", 409)


def test_a_key_is_halted_and_resumed_by_the_button(ann, desk):
    (topic,) = desk.routes.topics
    at = f"/topics/{topic}/halt?{urlencode({'handler': HANDLER, 'key': 'cust-1'})}"
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', ann.get(at).text)
    ann.post(f"/topics/{topic}/halt", data={**{n: unescape(v) for n, v in hidden}, "why": "it burns"})
    assert [each["key"] for each in read_handler_halts(desk.settings, topic)] == ["cust-1"]
    said, answer = undo(ann, "/")
    assert (said, answer.status_code) == (f"Halted Key cust-1 of {HANDLER} on {topic}. Resume", 303)
    assert not read_handler_halts(desk.settings, topic)


def test_a_policy_that_was_changed_is_put_back_by_the_button_to_what_it_was(ann, desk):
    path = f"/handlers/{HANDLER}/policy"
    for value in ("20", "3"):
        form = {"option": "max_retries", "value": value, "why": "the bank is slow", "seen": seen(ann, path)}
        assert ann.post(path, data={**form, "token": ann.token}).status_code == 303
    said, answer = undo(ann, path)
    assert (said, answer.status_code) == ("Policy changed: max_retries=3. Put 20 back", 303)
    changed = read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"]["max_retries"]
    assert (changed["is"], changed["why"]) == (20, "taken back: the bank is slow")
    form = {"option": "max_retries", "unset": "1", "why": "it is back", "seen": seen(ann, path)}
    ann.post(path, data={**form, "token": ann.token})
    said, answer = undo(ann, path)
    assert said == "Policy changed: unset max_retries. Put 20 back"
    ann.post(path, data={**form, "token": ann.token, "seen": seen(ann, path)})
    ann.post(path, data={**form, "token": ann.token, "unset": "", "value": "7", "seen": seen(ann, path)})
    said, answer = undo(ann, path)
    assert said == "Policy changed: max_retries=7. Put the former one back"
    assert read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"] == {}


@pytest.mark.parametrize("why", ["", "  ", "x" * 501])
def test_without_a_reason_nothing_is_halted(ann, desk, why):
    (topic,) = desk.routes.topics
    answer = send(ann, f"/topics/{topic}/halt", why=why)
    assert answer.status_code == 400
    assert "Nothing was changed" in words(answer.text)
    assert topics(desk) == {}


def test_what_somebody_else_decided_meanwhile_is_not_undone_unseen(ann, desk):
    (topic,) = desk.routes.topics
    by_bob = (desk.app, desk.settings, desk.routes, [topic])
    token = {"token": ann.token, "why": "mine"}
    halt_topics(*by_bob, "it burns", "bob")
    answer = ann.post(f"/topics/{topic}/halt", data={**token, "seen": ""})
    assert answer.status_code == 409
    assert "Somebody was quicker" in answer.text
    # Who wanted a stop is not offered its end, least of all with the reason of the stop in it.
    assert f'action="/topics/{topic}/halt"' in answer.text
    assert f'action="/topics/{topic}/resume"' not in answer.text
    assert 'name="why" value=""' in answer.text
    assert "You had written: mine" in words(answer.text)
    assert topics(desk)[topic]["by"] == "bob"
    # Neither is who comes too late to the form.
    assert f'action="/topics/{topic}/halt"' in ann.get(f"/topics/{topic}/halt").text
    assert send(ann, f"/topics/{topic}/halt", why="it burns at my place, too").status_code == 303
    assert topics(desk)[topic]["by"] == "ann"
    halt_topics(*by_bob, "it burns", "bob")

    page = ann.get(f"/topics/{topic}/resume").text
    seen = unescape(re.search(r'name="seen" value="([^"]*)"', page)[1])  # type: ignore[index]
    halt_topics(*by_bob, "and the cellar is full of water", "bob")
    answer = ann.post(f"/topics/{topic}/resume", data={**token, "seen": seen})
    assert answer.status_code == 409
    assert "full of water" in words(answer.text)
    assert topic in topics(desk)
    resume_topics(*by_bob, "", "bob")
    answer = ann.post(f"/topics/{topic}/resume", data={**token, "seen": seen})
    assert answer.status_code == 409
    assert f'action="/topics/{topic}/resume"' in answer.text
    assert send(ann, f"/topics/{topic}/resume", why="it is out").status_code == 303
    assert [each.by for each in desk.trail.page(EntryFilter(what=("resume",))).entries] == []


def test_a_topic_that_nobody_names_is_not_halted(ann, desk):
    assert ann.get("/topics/nobodys/halt").status_code == 404
    assert ann.post("/topics/nobodys/halt", data={"token": ann.token, "why": "x", "seen": ""}).status_code == 404
    assert topics(desk) == {}


def test_a_form_that_is_not_of_the_session_halts_nothing(ann, desk):
    (topic,) = desk.routes.topics
    assert ann.post(f"/topics/{topic}/halt", data={"why": "x", "seen": ""}).status_code == 403
    assert topics(desk) == {}


@pytest.mark.slow
def test_with_kafka_away_a_halt_counts_and_is_said_not_to_be_safe_yet(stack: Stack):
    stack.make_topics("orders")
    for desk in desk_on(stack, kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"}):
        console = Console(desk, "shop")
        console.status_cache = make_status_cache(status)
        with signed_in(console, Role.OPERATOR) as client:
            answer = send(client, f"/topics/{stack.topic('orders')}/halt", why="it burns")
        assert answer.status_code == 200
        assert "Not durable yet: only Redis has the decision" in words(answer.text)
        assert "is halted" in words(answer.text)


def test_the_form_says_beforehand_what_is_waited_for_and_what_does_not_answer(ann, console, desk):
    (topic,) = desk.routes.topics
    page = ann.get(f"/topics/{topic}/halt").text
    assert "12 seconds while Kafka is unavailable." in words(page)
    assert 'data-waits="Asking Kafka' in page
    away = {**status(), "unanswered": ["Kafka does not answer: timed out."]}
    console.status_cache = make_status_cache(lambda: away)
    console.status_cache.read(20)
    said = words(ann.get(f"/topics/{topic}/halt").text)
    assert "Kafka does not answer: timed out. Since" in said
    assert "as it may be now" in said


def test_what_others_wrote_is_text(ann, desk):
    (topic,) = desk.routes.topics
    halt_topics(desk.app, desk.settings, desk.routes, [topic], hostile_input.TEXT, hostile_input.TEXT)
    hostile_input.check(ann.get(f"/topics/{topic}/resume").text)
    answer = ann.post(f"/topics/{topic}/halt", data={"token": ann.token, "why": hostile_input.TEXT, "seen": ""})
    assert answer.status_code == 409
    hostile_input.check(answer.text)


# A policy


def token_of(browser: Any) -> str:
    return str(browser.token)


def seen(browser, path):
    # Of a policy one option has its form, in its row.
    address = f"{path}?option=max_retries" if path.endswith("/policy") else path
    page = re.sub(r'<div class="say is-good done".*?</form>', "", browser.get(address).text, flags=re.S)
    return unescape(re.findall(r'name="seen" value="([^"]*)"', page)[0])


def test_of_two_who_change_a_policy_the_second_is_told_who_was_quicker_and_keeps_its_words(ann, console, desk):
    path = f"/handlers/{HANDLER}/policy"
    form = {"option": "max_retries", "value": "20", "why": "the bank is slow", "seen": seen(ann, path)}
    with signed_in(console, Role.ADMIN) as other:
        hers = {**form, "token": token_of(other), "value": "3", "why": "the bank is gone"}
        assert other.post(path, data=hers).status_code == 303
        answer = ann.post(path, data={**form, "token": ann.token})
        assert answer.status_code == 409
        assert "Somebody was quicker. admin has changed it at" in words(answer.text)
        assert 'value="the bank is slow"' in answer.text
        found = read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"]["max_retries"]
        assert (found["is"], found["by"]) == (3, "admin")
        # A double click is nobody else.
        assert other.post(path, data=hers).status_code == 303
    assert len(desk.trail.page(EntryFilter(what=("policy",))).entries) == 1


def test_a_double_click_halts_once_and_resumes_once(ann, desk):
    (topic,) = desk.routes.topics
    for verb in ("halt", "resume"):
        form = {"token": ann.token, "seen": seen(ann, f"/topics/{topic}/{verb}"), "why": "it burns"}
        answers = [ann.post(f"/topics/{topic}/{verb}", data=form) for _ in range(2)]
        assert [each.status_code for each in answers] == [303, 303]
        assert len(desk.trail.page(EntryFilter(what=(verb,))).entries) == 1


def test_a_policy_is_changed_and_taken_back_with_a_reason(ann, desk):
    path = f"/handlers/{HANDLER}/policy"
    assert "Set it for all workers" not in ann.get(path).text
    form = ann.get(f"{path}?option=max_retries").text
    assert "has the policy of its code" in words(form)
    assert "12 seconds while Kafka is unavailable." in words(form)
    assert form.count('data-waits="Asking Kafka') == form.count('class="small waits" role="status"') == 1
    answer = ann.post(
        path, data={"token": ann.token, "option": "max_retries", "value": "20", "why": "the bank is slow"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    found = read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"]["max_retries"]
    assert (found["was"], found["is"], found["by"], found["why"]) == (12, 20, "ann", "the bank is slow")
    page = words(ann.get(path).text)
    assert "has a changed policy" in page
    assert "max_retries 20 12 by ann at" in page

    form = {"token": ann.token, "option": "max_retries", "unset": "1", "why": "it is back", "seen": seen(ann, path)}
    assert ann.post(path, data=form).status_code == 303
    assert read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"] == {}
    assert "it is back" in words(ann.get(path).text)
    assert [each.said for each in desk.trail.page(EntryFilter(what=("policy",))).entries] == [
        f"unset max_retries of {HANDLER}: it is back",
        f"max_retries=20 of {HANDLER}: the bank is slow",
    ]


@pytest.mark.parametrize(("role", "changes"), [(Role.VIEWER, 0), (Role.OPERATOR, 12)])
def test_each_option_is_changed_in_its_row_and_by_no_viewer(console, role, changes):
    path = f"/handlers/{HANDLER}/policy"
    with signed_in(console, role) as client:
        links = re.findall(r'href="([^"]*)#edit"', client.get(path).text)
        assert (len(links) > 5) == bool(changes)
        assert (f"{path}?option=max_retries" in links) == bool(changes)
        page = client.get(f"{path}?option=max_retries").text
        assert ("Set it for all workers" in page) == bool(changes)
        assert page.count('id="edit"') == bool(changes)


def test_a_value_is_tried_on_the_letters_beside_its_form_and_nothing_is_changed(ann, desk):
    ids = IdCache()
    died = [letter(n, handler=HANDLER, runs=13, failed_at=int(time.time() * 1000)) for n in range(3)]
    with desk.database.writing() as connection:
        LetterWriter(connection, ids, int(time.time() * 1000), 1_000_000).record(died)
    path = f"/handlers/{HANDLER}/policy"
    form = {"token": ann.token, "option": "max_retries", "value": "0", "why": "", "try": "1", "seen": seen(ann, path)}
    answer = ann.post(path, data=form)
    assert answer.status_code == 200
    text = words(answer.text)
    assert "With max_retries=0" in text
    assert re.search(r"3 letters of 30 days As it was With it .*attempts in all \d+ 3 ", text)
    assert "Nothing was changed." in text
    assert re.search(r'name="value" value="0"', answer.text)
    assert read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"] == {}
    assert not desk.trail.page(EntryFilter(what=("policy",))).entries
    refused = ann.post(path, data={**form, "value": "many"})
    assert refused.status_code == 400
    assert "Nothing was changed" in words(refused.text)
    assert 'value="many"' in refused.text


def test_a_value_that_is_none_is_refused_and_what_was_typed_is_still_there(ann, desk):
    path = f"/handlers/{HANDLER}/policy"
    form = {"token": ann.token, "option": "max_retries", "value": "many", "why": "the bank is slow"}
    answer = ann.post(path, data=form)
    assert answer.status_code == 400
    assert "Nothing was changed." in words(answer.text)
    assert 'value="many"' in answer.text
    assert 'value="the bank is slow"' in answer.text
    assert read_policies(desk.app, desk.settings, desk.routes, HANDLER)[HANDLER]["changed"] == {}
    assert ann.post(path, data={**form, "value": "3", "why": ""}).status_code == 400
    assert ann.get("/handlers/nobody.knows/policy").status_code == 404


def test_a_reader_sees_a_policy_and_has_no_form(console):
    with signed_in(console, Role.VIEWER) as client:
        page = client.get(f"/handlers/{HANDLER}/policy").text
        assert "max_retries" in page
        assert "<select" not in page
        assert "needs the role operator" in page


@pytest.mark.parametrize("key", [None, "47 11/ä", "0xff01", "text:0x35", "text:"])
def test_a_handler_or_a_key_is_halted_and_resumed_on_the_page_of_its_topic(ann, console, desk, key):
    (topic,) = desk.routes.topics
    query = urlencode({"handler": HANDLER, **({} if key is None else {"key": key})})
    subject = f"{HANDLER} on {topic}" if key is None else f"Key {key} of {HANDLER} on {topic}"
    page = ann.get(f"/topics/{topic}/halt?{query}").text
    assert f"{subject} is not halted" in words(page)
    assert f"All other handlers and keys of {topic} go on." in words(page)
    answer = send(ann, f"/topics/{topic}/halt?{query}", why="it books twice")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/topics/{topic}/resume?{query}")
    (found,) = read_handler_halts(desk.settings)
    assert (found["handler"], found["key"], found["by"], found["why"]) == (HANDLER, key, "ann", "it books twice")
    assert topics(desk) == {}
    assert f"{subject} is halted" in words(ann.get(answer.headers["location"]).text)

    listed = {**found, "waiting": 3, "waiting_deliveries": 9}
    console.status_cache = make_status_cache(lambda: status(halted_handlers=[listed]))
    console.status_cache.read(20)
    page = ann.get(f"/topics/{topic}/halt").text
    assert f"{HANDLER} {key or 'every key'} 9 " in words(page)
    assert f'href="/topics/{topic}/resume?{query.replace("&", "&amp;")}"' in page
    answer = send(ann, f"/topics/{topic}/resume?{query}", why="it is mended")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/topics/{topic}/halt?{query}")
    assert read_handler_halts(desk.settings) == []
    what = f"handler {HANDLER} of {topic}" if key is None else f"a key of handler {HANDLER} of {topic}"
    assert [each.said for each in desk.trail.page(EntryFilter(what=("halt", "resume"))).entries] == [
        f"resumed {what}: it is mended",
        f"halted {what}: it books twice",
    ]


def test_a_handler_that_the_topic_does_not_have_is_not_halted(ann, desk):
    (topic,) = desk.routes.topics
    assert ann.get(f"/topics/{topic}/halt?handler=nobody").status_code == 404
    form = {"token": ann.token, "why": "x", "seen": "", "handler": "nobody"}
    assert ann.post(f"/topics/{topic}/halt", data=form).status_code == 404
    assert read_handler_halts(desk.settings) == []
