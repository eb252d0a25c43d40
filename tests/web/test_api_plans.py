"""Plans that programs make beside those of letters as they are: patched, copied, redriven; and what leaves as lines."""

import json
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from bridge.console import bulk_actions
from bridge.console.api import letters_api as api_letters
from bridge.console.asgi_app import build_application
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.letter_edit import LetterEditor
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.replay import copy_action
from bridge.deadletters.replay.copy_action import CopyTarget
from bridge.errors import DeskUnavailable
from tests.desk.letters import HANDLER, letter
from tests.web.signed_in_console import desk_of

PATCH = [{"op": "replace", "path": "/amount", "value": 12}]
OPEN = {"status": ["open"]}


class Killed(BaseException):
    """A console's process is killed."""


class Program:
    """A program with a token; each act under a key of its own, unless one is given."""

    def __init__(self, console, by="ann"):
        secret = console.desk.tokens.make(f"nightly {uuid4().hex[:6]}", Role.OPERATOR, by)[1]
        self._client = TestClient(
            build_application(console), base_url="https://localhost", raise_server_exceptions=False
        )
        self._said = {"authorization": f"Bearer {secret}"}

    def get(self, path):
        return self._client.get(f"/api/v1{path}", headers=self._said)

    def post(self, path, body, key="", **headers):
        said = {"idempotency-key": key or uuid4().hex, **headers}
        return self._client.post(f"/api/v1{path}", json=body, headers=self._said | said)


@pytest.fixture
def desk_here(desk, monkeypatch):
    """The desk, while Kafka says nothing to who counts a plan."""
    quiet = desk_of(desk.database, monkeypatch)
    return DeadLetterService(desk.app, quiet.settings, desk.routes, desk.database)


@pytest.fixture
def program(desk_here):
    return Program(Console(desk_here, "shop @ localhost:1"))


@pytest.fixture
def topics(monkeypatch):
    """Kafka has a topic for copies; the handler's own, too."""

    class There:
        id = "one"
        topics = ("copies", "orders")

    asked = []

    def look(properties):
        asked.append(properties.get("bootstrap.servers"))
        return There

    monkeypatch.setattr(copy_action, "admin_client", lambda properties: properties)
    monkeypatch.setattr(copy_action, "read_cluster", look)
    return asked


def some(record):
    values = (b'{"amount":"many"}', b'{"amount":12}', b"no json", b'{"amount":"x","id":1.10}')
    record(*(letter(source, value=value) for source, value in enumerate(values)))


# Patched


def test_a_patch_is_a_plan_whose_preview_says_what_becomes_of_each_letter(program, record):
    some(record)
    made = program.post("/plans/patch", {"letters": OPEN, "patch": PATCH, "why": "the client sent words"})
    assert made.status_code == 201, made.text
    plan = made.json()
    assert made.headers["location"] == f"/api/v1/plans/{plan['id']}"
    assert (plan["state"], plan["preview"]["matched"]) == ("planned", 4)
    assert (plan["preview"]["will"], plan["preview"]["unpatched"]) == (2, 2)
    assert (plan["counts"]["edits"]["unchanged"], plan["counts"]["edits"]["no_json"]) == (1, 1)
    assert plan["asked"]["patch"] == json.dumps(PATCH)
    found = program.get(f"/plans/{plan['id']}/differences").json()
    assert [each["letter"] for each in found["items"]] == [1, 4]
    assert found["next"] is None
    assert '-  "amount": "many"' in found["items"][0]["difference"]
    assert '+  "amount": 12' in found["items"][0]["difference"]
    left = program.get(f"/plans/{plan['id']}/outcomes?state=skipped").json()["items"]
    assert {each["letter"] for each in left} == {2, 3}


def test_differences_come_a_page_at_a_time(program, record):
    some(record)
    path = f"/plans/{program.post('/plans/patch', {'letters': OPEN, 'patch': PATCH}).json()['id']}/differences?limit=1"
    first = program.get(path).json()
    second = program.get(f"{path}&cursor={first['next']}").json()
    assert [each["letter"] for page in (first, second) for each in page["items"]] == [1, 4]
    assert second["next"] is None


def test_differences_of_large_values_come_fewer_at_a_time(program, record, monkeypatch):
    some(record)
    path = f"/plans/{program.post('/plans/patch', {'letters': OPEN, 'patch': PATCH}).json()['id']}/differences"
    monkeypatch.setattr("bridge.deadletters.db.letter_transfer.BYTES_AT_ONCE", 10)
    first = program.get(path).json()
    second = program.get(f"{path}?cursor={first['next']}").json()
    found = [[each["letter"] for each in page["items"]] for page in (first, second)]
    assert (found, second["next"]) == ([[1], [4]], None)
    assert program.get("/plans/999/differences").status_code == 404


def test_a_patch_as_text_keeps_every_digit(program, record, desk):
    some(record)
    rate = '{"op": "add", "path": "/rate", "value": 0.12345678901234567890}'
    text = f'[{rate}, {{"op": "add", "path": "/amount", "value": 1}}]'
    made = program.post("/plans/patch", {"letters": {"id": [1]}, "patch": text})
    assert made.status_code == 201, made.text
    with desk.database.reading() as connection:
        value = connection.execute(select(tables.edits.c.value)).scalar_one()
    assert b"0.12345678901234567890" in value


@pytest.mark.parametrize(
    ("patch", "status", "words"),
    [
        ([], 422, "body.patch"),
        ([{"op": "turn", "path": "/x"}], 422, "Operation 1"),
        ("no json", 422, "no JSON"),
        ([{"op": "add", "path": "/x"}], 422, "has no 'value'"),
    ],
)
def test_a_patch_that_is_none_is_refused_and_nothing_is_made(program, record, patch, status, words):
    some(record)
    refused = program.post("/plans/patch", {"letters": OPEN, "patch": patch})
    assert refused.status_code == status
    assert words in refused.text
    assert program.get("/plans").json()["items"] == []


def test_what_a_handler_does_not_take_is_patched_by_force_with_a_reason_alone(program, record):
    some(record)
    wish = {"letters": {"id": [1]}, "patch": [{"op": "add", "path": "/amount", "value": "more"}]}
    assert program.post("/plans/patch", wish).json()["counts"]["edits"]["not_valid"] == 1
    assert program.post("/plans/patch", wish | {"force": True}).status_code == 422
    forced = program.post("/plans/patch", wish | {"force": True, "why": "its model is mended tomorrow"})
    assert forced.json()["preview"]["will"] == 1


def test_a_patch_over_more_than_it_can_do_while_one_waits_is_refused(program, record, monkeypatch):
    some(record)
    monkeypatch.setattr(bulk_actions, "MAX_PATCHED_LETTERS", 3)
    refused = program.post("/plans/patch", {"letters": OPEN, "patch": PATCH})
    assert (refused.status_code, program.get("/plans").json()["items"]) == (422, [])
    assert "more letters than the 3 that can be patched" in refused.json()["detail"]


def test_of_values_that_are_too_many_bytes_to_take_apart_meanwhile_none_is_patched_or_checked(
    program, record, monkeypatch
):
    some(record)
    monkeypatch.setattr(bulk_actions, "MAX_PATCHED_BYTES", 30)
    for address in ("/plans/patch", "/letters/check"):
        refused = program.post(address, {"letters": OPEN} | ({"patch": PATCH} if "patch" in address else {}))
        assert (refused.status_code, "the 30 bytes of values" in refused.json()["detail"]) == (422, True), address


def test_a_patch_whose_maker_was_killed_in_the_midst_is_made_anew_by_who_asks_again(program, record, desk, monkeypatch):
    some(record)

    def killed(*_, **__):
        raise Killed

    wish = {"letters": OPEN, "patch": PATCH}
    with monkeypatch.context() as dies:
        dies.setattr(LetterEditor, "_change", killed)
        with suppress(Killed):
            program.post("/plans/patch", wish, "once")
    made = program.post("/plans/patch", wish, "once").json()
    assert (made["state"], made["preview"]["will"]) == ("planned", 2)
    assert program.post("/plans/patch", wish, "once").json()["id"] == made["id"]
    states = {each["id"]: each["state"] for each in program.get("/plans").json()["items"]}
    assert sorted(states.values()) == ["making", "planned"]


# Copied


def test_a_copy_is_a_plan_that_can_be_applied(program, record, topics):
    some(record)
    made = program.post("/plans/copy", {"letters": OPEN, "topic": "copies", "why": "to look into"})
    assert made.status_code == 201, made.text
    plan = made.json()
    assert (plan["what"], plan["options"]["target"], plan["preview"]["will"]) == ("copy", {"topic": "copies"}, 4)
    applied = program.post(f"/plans/{plan['id']}/apply", {}, **{"if-match": made.headers["etag"]})
    assert (applied.status_code, applied.json()["state"]) == (200, "applying"), applied.text


@pytest.mark.parametrize(
    ("topic", "words"), [("orders", "a topic that handlers read"), ("nowhere", "There is no topic")]
)
def test_a_copy_goes_into_no_topic_of_the_group_s_and_into_none_that_is_not_there(
    program, record, topics, topic, words
):
    some(record)
    refused = program.post("/plans/copy", {"letters": OPEN, "topic": topic})
    assert (refused.status_code, refused.json()["title"]) == (422, "The request was refused.")
    assert words in refused.json()["detail"]


def test_a_request_names_no_address_of_another_kafka(program, record, topics, monkeypatch):
    some(record)
    monkeypatch.delenv("TARGET_KAFKA_BOOTSTRAP_SERVERS", raising=False)
    wish = {"letters": OPEN, "topic": "copies"}
    for address in ("169.254.169.254:80", "localhost:6379", "/etc/passwd"):
        assert program.post("/plans/copy", {**wish, "kafka": address}).status_code == 422
        assert program.post("/plans/copy", {**wish, "to_kafka": address}).status_code == 422
    refused = program.post("/plans/copy", {**wish, "kafka": "target"})
    assert "A request names no address" in refused.json()["detail"]
    assert topics == []


def test_a_copy_goes_to_the_kafka_that_is_configured(program, record, topics, monkeypatch):
    some(record)
    monkeypatch.setenv("TARGET_KAFKA_BOOTSTRAP_SERVERS", "sandbox:9092")
    monkeypatch.setenv("TARGET_KAFKA_SASL_PASSWORD", "secret")
    made = program.post("/plans/copy", {"letters": OPEN, "topic": "copies", "kafka": "target"})
    assert made.status_code == 201, made.text
    assert made.json()["options"]["target"] == {"topic": "copies", "addresses": "sandbox:9092", "file": ""}
    assert "secret" not in made.text
    assert topics[0] == "sandbox:9092"
    assert CopyTarget.configured({"TARGET_KAFKA_BOOTSTRAP_SERVERS": "a:1"}).properties({}) == {
        "bootstrap.servers": "a:1"
    }


# Redriven


def test_a_redrive_says_what_it_cannot_do(program, record):
    some(record)
    refused = program.post("/plans/redrive", {"topic": "nowhere", "from": "earliest"})
    assert refused.status_code == 422
    assert "No handler of this app names topic" in refused.json()["detail"]
    refused = program.post("/plans/redrive", {"topic": "orders", "from": "someday"})
    assert (refused.status_code, "or an offset" in refused.json()["detail"]) == (422, True)
    refused = program.post("/plans/redrive", {"topic": "orders", "since": "earliest"})
    assert {each["where"] for each in refused.json()["errors"]} == {"body.from", "body.since"}


# What leaves


def test_letters_are_exported_as_the_command_writes_them_and_are_imported_elsewhere(program, record, desk):
    some(record)
    answer = program.get(f"/letters/export?handler={HANDLER}")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert 'filename="letters.jsonl"' in answer.headers["content-disposition"]
    assert answer.text.splitlines() == list(desk.transfers.lines("ann", LetterFilter(handlers=(HANDLER,))))
    taken = desk.transfers.take(answer.content.splitlines(), "ann", "letters.jsonl")
    assert (taken.known, taken.refused) == (4, 0)
    assert program.get("/letters/export?attempts=9999").text.count("\n") == 1


def test_who_exported_what_and_how_many_is_in_the_trail_without_what_of_letters_they_searched_by(program, record, desk):
    some(record)
    program.get(f"/letters/export?handler={HANDLER}&status=open&key=secret-key&text=declined&header=x%3Dsecret")
    program.get("/letters/export?id=1")
    program.get("/letters/export")
    found = desk.trail.page(EntryFilter(what=["export"])).entries
    assert [each.said for each in found] == [
        "4 letters: all",
        "1 letter: letter 1",
        f"0 letters: handler {HANDLER}, status open, words, a key, headers",
    ]
    assert all("nightly" in each.by for each in found)


def test_an_export_of_a_database_that_does_not_answer_is_a_problem_and_no_file(program, monkeypatch):
    def away(*_, **__):
        yield from failing()

    def failing():
        raise DeskUnavailable("The database does not answer.")

    monkeypatch.setattr("bridge.deadletters.inspection.letter_file.LetterTransfers.lines", away)
    answer = program.get("/letters/export")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")


def test_without_a_line_in_the_trail_nothing_leaves(program, record, monkeypatch):
    some(record)

    def away(*_, **__):
        raise DeskUnavailable("The trail cannot be written.")

    monkeypatch.setattr("bridge.deadletters.db.audit_rows.write_entry", away)
    for address in ("/letters/export", "/trail/export"):
        assert program.get(address).status_code == 503


def test_the_trail_has_who_was_given_it_and_what_of_it(program, desk):
    desk.trail.add("kim", "note", "one")
    desk.trail.add("ann", "note", "two")
    (line,) = program.get("/trail/export?by=kim&what=note&what=replay").text.splitlines()
    assert json.loads(line)["said"] == "one"
    assert "export" not in {json.loads(each)["what"] for each in program.get("/trail/export?by=ann").text.splitlines()}
    said = [each.said for each in desk.trail.page(EntryFilter(what=["export"])).entries]
    # What ann did with tokens is for admins.
    assert said == ["1 line of the audit log, by ann", "1 line of the audit log, by kim, note or replay"]


def test_the_trail_is_exported_whole(program, record, desk, monkeypatch):
    monkeypatch.setattr("bridge.deadletters.accounts.audit_log.ENTRIES_AT_ONCE", 2)
    for number in range(5):
        desk.trail.add("kim" if number % 2 else "ann", "note", f"line {number}")
    lines = [json.loads(line) for line in program.get("/trail/export?what=note").text.splitlines()]
    assert [each["said"] for each in lines] == [f"line {number}" for number in range(4, -1, -1)]
    assert set(lines[0]) >= {"id", "at", "by", "what", "said", "plan_id"}
    assert {json.loads(line)["by"] for line in program.get("/trail/export?by=kim").text.splitlines()} == {"kim"}
    assert program.get("/trail/export?by=nobody").text == ""


# What handlers would take


def test_it_is_told_which_letters_their_handlers_would_take_now(program, record):
    some(record)
    found = program.post("/letters/check", {"letters": OPEN}).json()
    assert (found["letters"], found["valid"], found["invalid"]) == (4, 1, 3)
    assert sum(each["count"] for each in found["invalid_reasons"]) == 3
    assert all(each["why"] and each["letters"] for each in found["invalid_reasons"])


@pytest.mark.parametrize("besides", [{}, {"since": "1970-01-01"}, {"attempts": 1}], ids=["tallied", "time", "attempts"])
def test_of_more_letters_than_one_can_wait_for_that_is_not_told(program, record, monkeypatch, besides):
    some(record)
    monkeypatch.setattr(api_letters, "MAX_CHECKED_LETTERS", 3)
    # A count that somebody looks at ends before that.
    monkeypatch.setattr("bridge.deadletters.db.letter_query.MOST_COUNTED", 2)
    monkeypatch.setattr("bridge.deadletters.db.letter_query.MOST_LOOKED_THROUGH", 2)
    refused = program.post("/letters/check", {"letters": OPEN | besides})
    assert (refused.status_code, "the 3 that can be checked" in refused.json()["detail"]) == (422, True)


# A second person


def test_a_large_plan_awaits_a_second_person_whom_no_other_token_of_its_maker_is(desk_here, record):
    record(*(letter(source) for source in range(2)))
    environment = desk_here.settings.environment.model_copy(update={"DEADLETTERS_APPROVAL_ABOVE": 1})
    guarded = replace(desk_here, settings=replace(desk_here.settings, environment=environment))
    console = Console(guarded, "shop @ localhost:1")
    mine, also_mine, other = Program(console), Program(console), Program(console, "bob")
    made = mine.post("/plans", {"what": "archive", "letters": OPEN}).json()
    path = f"/plans/{made['id']}/apply"
    awaiting = mine.post(path, {"why": "old"}, **{"if-match": made["etag"]})
    now = awaiting.json()
    assert (awaiting.status_code, now["state"], now["awaiting"], now["planner"]) == (200, "planned", True, "ann")
    assert awaiting.json()["preview"]["will"] == 2
    seen = {"if-match": awaiting.json()["etag"]}
    refused = also_mine.post(path, {}, **seen)
    assert (refused.status_code, "awaits a second person" in refused.json()["detail"]) == (422, True), refused.text
    assert other.post(path, {}, **{"if-match": made["etag"]}).status_code == 409
    approved = other.post(path, {}, **seen).json()
    assert (approved["state"], approved["awaiting"], approved["why"], approved["trail"][-2]["what"]) == (
        *("applying", False, "old"),
        "approve",
    )
    assert approved["approved_by"].startswith("token nightly")
    assert approved["approved_at"] is not None
    second = mine.post("/plans", {"what": "archive", "letters": OPEN}).json()
    mine.post(f"/plans/{second['id']}/apply", {}, **{"if-match": second["etag"]})
    stopped = other.post(f"/plans/{second['id']}/stop", {"why": "no"}).json()
    assert (stopped["state"], stopped["trail"][-1]["what"]) == ("stopped", "reject")
