"""The console's API as a program has it: over a desk in SQLite, by a token."""

import base64
import json
import logging
from contextlib import suppress
from datetime import datetime
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update
from starlette.testclient import TestClient

from bridge.console.asgi_app import build_application
from bridge.console.auth.browser_session import SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.errors import DeskUnavailable
from tests.desk.letters import HANDLER, letter
from tests.desk.test_unknown_outcomes import sent
from tests.web.signed_in_console import desk_of
from tests.web.site import session

ROOT = "/api/v1"


class Killed(BaseException):
    """A console's process is killed."""


class Program:
    """A program with a token; each act under a key of its own, unless one is given."""

    def __init__(self, console, role, name=""):
        self.console = console
        self.token, self.secret = console.desk.tokens.make(name or f"{role}-{uuid4().hex[:6]}", role, "ann")
        self.client = TestClient(
            build_application(console), base_url="https://localhost", raise_server_exceptions=False
        )
        self.headers = {"authorization": f"Bearer {self.secret}"}

    def get(self, path, **headers):
        return self.client.get(ROOT + path, headers=self.headers | headers)

    def post(self, path, body=None, key="", **headers):
        said = {"idempotency-key": key or uuid4().hex} | {
            name.replace("_", "-"): each for name, each in headers.items()
        }
        return self.client.post(ROOT + path, json=body, headers=self.headers | said)

    def plan(self, **letters):
        made = self.post("/plans", {"what": "replay", "letters": letters})
        assert made.status_code == 201, made.text
        return made


@pytest.fixture
def no_kafka(desk, monkeypatch):
    """The desk, while Kafka says nothing to who counts a plan."""
    quiet = desk_of(desk.database, monkeypatch)
    return DeadLetterService(desk.app, quiet.settings, desk.routes, desk.database)


@pytest.fixture
def here(no_kafka):
    """A console."""
    return Console(no_kafka, "shop @ localhost:1")


@pytest.fixture
def program(here):
    """One that may act."""
    return Program(here, Role.OPERATOR)


def plans(database):
    with database.reading() as connection:
        return connection.execute(select(func.count()).select_from(tables.plans)).scalar_one()


def kind(answer):
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("/api/v1/problems/")
    return problem["type"].rpartition("/")[2]


# What is read


def test_letters_are_listed_a_page_at_a_time_each_once(program, record):
    record(*(letter(source) for source in range(7)))
    found, query = [], "?limit=3"
    while True:
        page = program.get(f"/letters{query}").json()
        found += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        query = f"?limit=3&cursor={page['next']}"
    assert sorted(found) == list(range(1, 8))
    assert len(found) == 7


def test_a_filter_is_that_of_the_command(program, record):
    record(letter(1), letter(2, handler="orders.handlers.notify"), letter(3, key=b"\xff\x00"))
    assert len(program.get(f"/letters?handler={HANDLER}").json()["items"]) == 2
    (one,) = program.get("/letters?key=0xff00").json()["items"]
    assert one["key"] == {"encoding": "base64", "data": "/wA=", "size": 2}
    assert program.get("/letters/count?status=open&status=resolved").json() == {
        "count": 3,
        "exact": True,
        "among": None,
    }
    assert program.get("/letters?status=resolved").json() == {"items": [], "next": None, "unread": 0}


def test_a_count_says_among_how_many_of_the_newest_letters_it_counted(program, record, monkeypatch):
    monkeypatch.setattr("bridge.deadletters.db.letter_query.MOST_LOOKED_THROUGH", 2)
    record(*map(letter, range(1, 4)))
    counted = program.get("/letters/count?attempts=1").json()
    assert (counted["exact"], counted["among"]) == (False, 2)


def test_a_letter_says_of_its_bytes_what_they_are_and_of_large_numbers_their_text(program, record):
    record(letter(9_007_199_254_740_993, value=b"\xc3\x28", headers=(("h", b"1"), ("h", None), ("x\udcff", b"\xff"))))
    found = program.get("/letters/1").json()
    assert found["offset"] == "9007199254740993"
    assert found["value"] == {"encoding": "base64", "data": "wyg=", "size": 2}
    assert found["headers"][:2] == [
        {"name": "h", "value": {"encoding": "utf-8", "data": "1", "size": 1}},
        {"name": "h", "value": None},
    ]
    assert found["headers"][2]["name"] == "x\\xff"
    assert datetime.fromisoformat(found["failed_at"]).utcoffset() is not None
    value = program.get("/letters/1/value")
    assert (value.content, value.headers["content-type"]) == (b"\xc3\x28", "application/octet-stream")
    assert value.headers["content-disposition"].startswith("attachment")


def test_a_time_that_no_calendar_has_is_none_and_ends_nothing(program, record):
    record(letter(1, timestamp=2**62))
    assert program.get("/letters/1").json()["timestamp"] is None


def test_a_tombstone_has_no_value(program, record):
    record(letter(1, value=None))
    assert program.get("/letters/1").json()["value"] is None
    assert kind(program.get("/letters/1/value")) == "not-found"


def test_groups_are_listed_a_page_at_a_time_and_one_says_what_to_do_next(program, record):
    record(*(letter(source, place=f"a.py:f{source % 5}") for source in range(9)))
    first = program.get("/groups?limit=3&order=newest").json()
    second = program.get(f"/groups?limit=3&order=newest&cursor={first['next']}").json()
    ids = [each["id"] for each in first["items"] + second["items"]]
    assert (len(set(ids)), second["next"]) == (5, None)
    one = program.get(f"/groups/{ids[0]}")
    assert one.json()["next"]["do"] == "look"
    assert one.headers["etag"] == one.json()["etag"]


def test_figures_the_trail_halts_and_proofs_are_answered(program, record):
    record(letter(1))
    program.post("/letters/1/notes", {"said": "seen"})
    assert program.get("/stats").json()["statuses"] == {"open": 1}
    trail = program.get("/trail?what=note").json()
    assert [(each["by"], each["said"]) for each in trail["items"]] == [(f"token {program.token.name}", "seen")]
    assert program.get("/audit").json() == {"items": []}


def test_a_record_is_found_with_its_letters_and_what_does_not_answer_is_said(program, record):
    record(letter(7))
    found = program.get("/find?q=orders-0-7").json()
    assert [each["id"] for each in found["letters"]] == [1]
    assert found["silent"]
    assert program.get("/find?q=1").json()["letters"][0]["id"] == 1
    assert kind(program.get("/find?q=plan%2077")) == "not-found"
    assert kind(program.get("/find")) == "invalid"


# What acts


def test_a_plan_is_made_previewed_applied_stopped_and_its_outcomes_are_listed(program, record):
    record(letter(1), letter(2))
    made = program.plan(status=["open"])
    plan = made.json()
    assert made.headers["location"] == f"{ROOT}/plans/{plan['id']}"
    assert (plan["state"], plan["preview"]["matched"], plan["by"]) == ("planned", 2, f"token {program.token.name}")
    applied = program.post(f"/plans/{plan['id']}/apply", {"why": "mended"}, if_match=made.headers["etag"])
    assert (applied.status_code, applied.json()["state"], applied.json()["why"]) == (200, "applying", "mended")
    assert applied.headers["etag"] != made.headers["etag"]
    stopped = program.post(f"/plans/{plan['id']}/stop", {})
    assert stopped.json()["state"] == "stopped"
    first = program.get(f"/plans/{plan['id']}/outcomes?limit=1").json()
    second = program.get(f"/plans/{plan['id']}/outcomes?limit=1&cursor={first['next']}").json()
    assert [each["letter"] for each in first["items"] + second["items"]] == [1, 2]
    assert second["next"] is None
    assert program.get(f"/plans/{plan['id']}/outcomes?state=dead").json()["items"] == []
    assert [each["id"] for each in program.get("/plans").json()["items"]] == [plan["id"]]


def test_plans_are_listed_a_page_at_a_time(program, record):
    record(letter(1))
    ids = [program.plan(id=[1]).json()["id"] for _ in range(3)]
    first = program.get("/plans?limit=2").json()
    second = program.get(f"/plans?limit=2&cursor={first['next']}").json()
    assert [each["id"] for each in first["items"] + second["items"]] == ids[::-1]


def test_who_decides_without_having_looked_is_refused(program, record):
    record(letter(1))
    plan = program.plan(id=[1]).json()
    assert kind(program.post(f"/plans/{plan['id']}/apply", {})) == "not-seen"
    assert program.get(f"/plans/{plan['id']}").json()["state"] == "planned"


def test_where_somebody_was_quicker_it_says_who_what_and_when(program, here, record):
    record(letter(1))
    seen = program.plan(id=[1])
    path = f"/plans/{seen.json()['id']}"
    other = Program(here, Role.OPERATOR, "night watch")
    assert other.post(f"{path}/stop", {"why": "not now"}).status_code == 200
    refused = program.post(f"{path}/apply", {}, if_match=seen.headers["etag"])
    assert kind(refused) == "changed"
    problem = refused.json()
    assert (problem["by"], problem["did"]) == ("token night watch", "stopped by token night watch: not now")
    assert datetime.fromisoformat(problem["at"]).year > 2000
    assert problem["etag"] == program.get(path).headers["etag"]


def test_a_plan_of_which_others_have_taken_letters_is_not_as_it_was_seen(program, here, record):
    record(letter(1), letter(2))
    seen = program.plan(status=["open"])
    with here.desk.database.writing() as connection:
        connection.execute(
            update(tables.letters).where(tables.letters.c.id == 1).values(status="discarded", status_at=2**50)
        )
    refused = program.post(f"/plans/{seen.json()['id']}/apply", {}, if_match=seen.headers["etag"])
    assert kind(refused) == "changed"


def test_discarding_takes_a_reason_and_the_number_of_letters(program, record):
    record(letter(1), letter(2))
    made = program.post("/plans", {"what": "discard", "letters": {"status": ["open"]}})
    path, etag = f"/plans/{made.json()['id']}/apply", made.headers["etag"]
    assert "reason" in program.post(path, {"count": 2}, if_match=etag).json()["detail"]
    assert "Type 2" in program.post(path, {"why": "test data"}, if_match=etag).json()["detail"]
    assert program.post(path, {"why": "test data", "count": 2}, if_match=etag).status_code == 200


def test_a_discard_that_was_thrown_away_undecided_is_not_gone_on_with(program, here, record):
    record(letter(1), letter(2))
    path = f"/plans/{program.post('/plans', {'what': 'discard', 'letters': {'status': ['open']}}).json()['id']}"
    assert program.post(f"{path}/stop", {}).status_code == 200
    refused = program.post(f"{path}/apply", {}, if_match=program.get(path).headers["etag"])
    assert kind(refused) == "refused"
    assert "was thrown away before it was approved: make a new plan" in refused.json()["detail"]
    assert program.get(path).json()["state"] == "stopped"


def test_to_go_on_with_a_discard_of_very_many_takes_an_admin(program, here, record):
    record(letter(1))
    made = program.post("/plans", {"what": "discard", "letters": {"status": ["open"]}})
    path = f"/plans/{made.json()['id']}"
    assert program.post(f"{path}/apply", {"why": "x", "count": 1}, if_match=made.headers["etag"]).status_code == 200
    assert program.post(f"{path}/stop", {}).status_code == 200
    with here.desk.database.writing() as connection:
        counts = here.desk.plans.one(made.json()["id"]).counts.to_data() | {"letters": 1_001}
        connection.execute(update(tables.plans).values(counts=json.dumps(counts)))
    refused = program.post(f"{path}/apply", {}, if_match=program.get(path).headers["etag"])
    assert (kind(refused), "takes an admin" in refused.json()["detail"]) == ("refused", True)
    assert program.get(path).json()["state"] == "stopped"


def test_all_letters_are_meant_only_where_somebody_says_so(program, record):
    record(letter(1))
    assert kind(program.post("/plans", {"what": "replay", "letters": {}})) == "refused"
    assert kind(program.post("/plans", {"what": "replay", "letters": {"handler": ["nobody"]}})) == "refused"


def test_a_letter_is_checked_and_edited_with_its_own_bytes(program, here, record):
    record(letter(1, value=b'{"amount": "x"}'))
    bad = program.post("/letters/1/check", {"value": {"data": '{"amount": "y"}'}}).json()
    assert bad["ok"] is False
    good = program.post("/letters/1/check", {"value": {"data": '{"amount": 1}'}}).json()
    assert good["ok"] is True
    assert '+  "amount": 1' in good["difference"]
    refused = program.post("/letters/1/edit", {"value": {"data": '{"amount": "y"}'}})
    assert kind(refused) == "refused"
    new = {"encoding": "base64", "data": base64.b64encode(b'{"amount": 5}').decode()}
    made = program.post("/letters/1/edit", {"value": new, "why": "typing error"})
    assert (made.status_code, made.json()["state"]) == (201, "planned")
    assert made.json()["counts"]["edits"]["changed"] == 1
    assert program.get("/letters/1").json()["edits"] == []
    with here.desk.database.writing() as connection:
        connection.execute(update(tables.items).values(state="sent"))
    (sent,) = program.get("/letters/1").json()["edits"]
    assert (sent["what"], sent["value"]["data"], sent["plan"]) == ("edit", '{"amount": 5}', made.json()["id"])
    assert kind(program.post("/letters/1/edit", {"value": {"encoding": "base64", "data": "%"}})) == "invalid"
    forced = program.post("/letters/1/edit", {"value": None, "force": True})
    assert kind(forced) == "refused"


def test_a_person_says_how_a_replay_ended_of_which_nobody_could_tell(program, here):
    _, ids = sent(here.desk.database, PlanItemState.UNKNOWN, PlanItemState.UNKNOWN, PlanItemState.SENT)
    resolved = program.post(f"/letters/{ids[0]}/resolve", {"why": "the bank has it"})
    assert (resolved.json()["status"], resolved.json()["trail"][-1]["said"]) == ("resolved", "the bank has it")
    assert program.post(f"/letters/{ids[1]}/reopen", {"why": "the bank has it not"}).json()["status"] == "open"
    for way in ("resolve", "reopen"):
        refused = program.post(f"/letters/{ids[2]}/{way}", {"why": "a guess"})
        assert kind(refused) == "refused"
        assert "is replaying" in refused.json()["detail"]


def test_a_group_is_marked_as_fixed_as_it_was_seen_and_not_any_more(program, here, record):
    record(letter(1))
    seen = program.get("/groups/1").headers["etag"]
    assert kind(program.post("/groups/1/fixed", {"version": "2.0"})) == "not-seen"
    fixed = program.post("/groups/1/fixed", {"version": "2.0"}, if_match=seen)
    assert (fixed.json()["fixed_in"], fixed.json()["fixed_by"]) == ("2.0", f"token {program.token.name}")
    other = Program(here, Role.OPERATOR)
    assert kind(other.post("/groups/1/fixed", {"version": "2.1"}, if_match=seen)) == "changed"
    assert program.post("/groups/1/not-fixed", if_match=fixed.headers["etag"]).json()["fixed_in"] is None
    assert program.post("/groups/1/notes", {"said": "seen"}).json()["items"][-1]["said"] == "seen"


def test_a_cause_is_marked_as_fixed_alone_and_not_any_more(program, record):
    record(letter(1))
    seen = program.get("/groups/1")
    cause = seen.json()["causes"][0]["id"]
    body = {"version": "2.0", "cause": cause}
    fixed = program.post("/groups/1/fixed", body, if_match=seen.headers["etag"])
    assert fixed.json()["fixed_in"] is None
    assert [(each["cause"], each["fixed_in"]) for each in fixed.json()["cause_fixes"]] == [(cause, "2.0")]
    late = program.post(f"/groups/1/not-fixed?cause={cause}", if_match=seen.headers["etag"])
    assert kind(late) == "changed"
    undone = program.post(f"/groups/1/not-fixed?cause={cause}", if_match=fixed.headers["etag"])
    assert undone.json()["cause_fixes"] == []


# Once


def test_the_same_key_and_request_have_the_same_answer_and_one_act(program, here, record):
    record(letter(1))
    body = {"what": "replay", "letters": {"id": [1]}}
    first = program.post("/plans", body, key="one")
    second = program.post("/plans", body, key="one")
    assert second.content == first.content
    assert (second.status_code, second.headers["etag"], second.headers["location"]) == (
        *(first.status_code, first.headers["etag"], first.headers["location"]),
    )
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert plans(here.desk.database) == 1
    assert program.post("/plans", body, key="two").json()["id"] != first.json()["id"]


def test_the_same_key_with_another_request_is_refused(program, record):
    record(letter(1))
    program.post("/letters/1/notes", {"said": "a"}, key="one")
    assert kind(program.post("/letters/1/notes", {"said": "b"}, key="one")) == "key-reused"
    assert kind(program.post("/groups/1/notes", {"said": "a"}, key="one")) == "key-reused"
    assert len(program.get("/letters/1").json()["trail"]) == 1


def test_the_same_key_with_another_query_is_refused(program, record):
    record(letter(1))
    seen = program.get("/groups/1").headers["etag"]
    program.post("/groups/1/not-fixed", key="one", if_match=seen)
    assert kind(program.post("/groups/1/not-fixed?cause=x", key="one", if_match=seen)) == "key-reused"


def test_a_key_is_its_tokens_own(program, here, record):
    record(letter(1))
    other = Program(here, Role.OPERATOR)
    for each in (program, other):
        assert each.post("/letters/1/notes", {"said": each.token.name}, key="one").status_code == 200
    assert len(program.get("/letters/1").json()["trail"]) == 2


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "ü"])
def test_what_acts_wants_a_key(program, record, key):
    record(letter(1))
    headers = program.headers | ({"idempotency-key": key.encode()} if key else {})
    answer = program.client.post(f"{ROOT}/letters/1/notes", json={"said": "a"}, headers=headers)
    assert kind(answer) == "key-missing"
    assert program.get("/letters/1").json()["trail"] == []


def test_a_refusal_is_kept_too(program, record):
    record(letter(1))
    body = {"what": "replay", "letters": {"handler": ["nobody"]}}
    first = program.post("/plans", body, key="one")
    record(letter(2, handler="nobody"))
    second = program.post("/plans", body, key="one")
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["content-type"] == "application/problem+json"


def test_what_failed_for_a_server_that_was_away_is_done_when_it_is_asked_again(program, record, monkeypatch):
    record(letter(1))
    notes = "bridge.deadletters.accounts.audit_log.LetterNotes.on_letters"

    def away(*_):
        raise DeskUnavailable("The database is away.")

    with monkeypatch.context() as while_away:
        while_away.setattr(notes, away)
        refused = program.post("/letters/1/notes", {"said": "a"}, key="one")
        assert kind(refused) == "unavailable"
        assert refused.headers["retry-after"]
    assert program.post("/letters/1/notes", {"said": "a"}, key="one").status_code == 200
    assert len(program.get("/letters/1").json()["trail"]) == 1


@pytest.mark.parametrize(
    "dies", ["bridge.console.api.plans_api.describe_plan", "bridge.console.api.api_endpoint._keep_answer"]
)
def test_of_a_console_that_dies_after_it_acted_the_next_one_answers_what_was_done(
    program, here, record, monkeypatch, dies
):
    record(letter(1))
    body = {"what": "replay", "letters": {"id": [1]}}

    def killed(*_):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(dies, killed)
        # Nothing after the act is done any more: neither the answer is kept, nor is the request left to others.
        dying.setattr("bridge.console.api.api_endpoint._release_claim", killed)
        with suppress(Killed):
            program.post("/plans", body, key="one")
    assert kind(program.post("/plans", body, key="one")) == "under-way"
    with here.desk.database.writing() as connection:
        connection.execute(update(tables.requests).values(claimed_until=1))
    again = program.post("/plans", body, key="one")
    assert (again.status_code, again.json()["counts"]["letters"]) == (201, 1)
    assert plans(here.desk.database) == 1
    assert program.post("/plans", body, key="one").content == again.content


def test_a_plan_whose_maker_died_before_it_had_counted_is_counted(program, here, record, monkeypatch):
    record(letter(1), letter(2))
    body = {"what": "replay", "letters": {"status": ["open"]}}

    def killed(*_):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("bridge.deadletters.replay.plan_service.PlanService._count", killed)
        dying.setattr("bridge.console.api.api_endpoint._release_claim", killed)
        with suppress(Killed):
            program.post("/plans", body, key="one")
    with here.desk.database.writing() as connection:
        connection.execute(update(tables.requests).values(claimed_until=1))
    assert program.post("/plans", body, key="one").json()["counts"]["letters"] == 2
    assert plans(here.desk.database) == 1


# Who may


def test_without_a_token_nothing_is_answered_and_a_session_is_none(program, here):
    bare = TestClient(build_application(here), base_url="https://localhost")
    bare.cookies.set(SESSION_COOKIE, session(here, "ann", Role.ADMIN))
    answer = bare.get(f"{ROOT}/letters")
    assert kind(answer) == "unauthorized"
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("said", ["Basic YTpi", "Bearer", "Bearer ", "Bearer x", "bdl_x", "Bearer \xff"])
def test_what_is_no_token_is_refused(program, said):
    answer = program.client.get(f"{ROOT}/letters", headers={"authorization": said.encode("latin-1")})
    assert kind(answer) == "unauthorized"


def test_a_token_opens_nothing_once_it_is_revoked_or_has_ended(program, here):
    assert program.get("/letters").status_code == 200
    ended = Program(here, Role.VIEWER)
    with here.desk.database.writing() as connection:
        mine = tables.tokens.c.id == ended.token.id
        connection.execute(update(tables.tokens).where(mine).values(until=1))
    assert kind(ended.get("/letters")) == "unauthorized"
    here.desk.tokens.revoke(program.token.id, "ann")
    assert kind(program.get("/letters")) == "unauthorized"


def test_wrong_tokens_cost_their_address_waiting_and_right_ones_that_it_has_sent_go_on(program, here, caplog):
    assert program.get("/letters").status_code == 200
    late = Program(here, Role.VIEWER)
    for _ in range(20):
        wrong = program.client.get(f"{ROOT}/letters", headers={"authorization": "Bearer bdl_wrong"})
        assert wrong.status_code == 401
        assert "An admin creates tokens under Tokens, or by `bridge deadletters users tokens make`" in wrong.text
    waits = program.client.get(f"{ROOT}/letters", headers={"authorization": "Bearer bdl_wrong"})
    assert kind(waits) == "slow-down"
    assert int(waits.headers["retry-after"]) > 0
    assert kind(late.get("/letters")) == "slow-down"
    jumped = here.clock() + 2 * 3_600_000
    here.clock = lambda: jumped
    assert kind(late.get("/letters")) == "slow-down"
    assert program.get("/letters").status_code == 200
    assert "wrong token" in caplog.text
    assert "bdl_" not in caplog.text


def test_no_token_is_in_a_log_or_an_answer_whatever_happens(program, here, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("bridge.deadletters.inspection.letter_lookup.LetterLookup.page", lambda *_: 1 // 0)
    answer = program.get("/letters?key=secret-key")
    assert kind(answer) == "fault"
    assert answer.json()["instance"] in caplog.text
    logged = "".join(each.getMessage() for each in caplog.records if each.name == "bridge")
    for text in (logged, answer.text, repr(here), repr(here.bearers)):
        assert program.secret not in text
        assert "secret-key" not in text


def test_a_page_of_another_site_has_nothing_done(program, record):
    record(letter(1))
    for said in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        answer = program.client.post(f"{ROOT}/letters/1/notes", json={"said": "a"}, headers=program.headers | said)
        assert kind(answer) == "forbidden"
        assert "access-control-allow-origin" not in answer.headers


# What is wrong


@pytest.mark.parametrize(
    ("method", "path", "how", "status", "said"),
    [
        ("GET", "/nothing", {}, 404, "not-found"),
        ("GET", "/letters/x", {}, 404, "not-found"),
        ("GET", "/letters/7", {}, 404, "not-found"),
        ("GET", "/problems/nothing", {}, 404, "not-found"),
        ("DELETE", "/letters", {}, 405, "method-not-allowed"),
        ("GET", "/letters?limit=0", {}, 422, "invalid"),
        ("GET", "/letters?limit=201", {}, 422, "invalid"),
        ("GET", "/letters?limit=1&limit=2", {}, 422, "invalid"),
        ("GET", "/letters?handlr=x", {}, 422, "invalid"),
        ("GET", "/letters?cursor=%20", {}, 422, "invalid"),
        ("GET", "/letters?cursor=bGV0dGVyczp4", {}, 422, "refused"),
        ("GET", "/plans?cursor=bGV0dGVyczp4", {}, 422, "refused"),
        ("GET", "/letters?since=gestern", {}, 422, "refused"),
        ("GET", "/letters?status=gone", {}, 422, "invalid"),
        ("POST", "/plans", {"content": b"{", "json": None}, 400, "malformed"),
        ("POST", "/plans", {"content": b"\xff", "json": None}, 400, "malformed"),
        ("POST", "/plans", {"content": b"[" * 100_000, "json": None}, 400, "malformed"),
        ("POST", "/plans", {"content": b"", "json": None}, 400, "malformed"),
        ("POST", "/plans", {"content": '{"what": 1}'.encode("utf-16"), "json": None}, 400, "malformed"),
        ("POST", "/plans", {"content": b'{"what": "\\ud800"}', "json": None}, 400, "malformed"),
        ("POST", "/plans", {"content": b"x" * 2_000_001, "json": None}, 413, "too-large"),
        ("POST", "/plans", {"content": b"{}", "type": "text/plain", "json": None}, 415, "media-type"),
        ("POST", "/plans", {"json": {"what": "eat", "letters": {}}}, 422, "invalid"),
        ("POST", "/plans", {"json": {"what": "replay", "letters": {"ids": [1]}}}, 422, "invalid"),
        ("POST", "/plans", {"json": {"what": "replay", "letters": {"id": [2**60]}}}, 422, "invalid"),
        ("POST", "/topics/nothing/halt", {"json": {"why": ""}}, 422, "invalid"),
        ("POST", "/topics/orders/halt", {"json": {"why": "x", "handler": ""}}, 422, "refused"),
        ("POST", "/topics/orders/resume", {"json": {"why": "x", "handler": ""}}, 422, "refused"),
        ("POST", "/topics/orders/halt", {"json": {"why": "x", "handler": "h", "key": ""}}, 422, "refused"),
        ("POST", "/topics/orders/halt", {"json": {"why": "x", "handler": "h", "key": "0xzz"}}, 422, "refused"),
    ],
)
def test_every_fault_is_a_problem_of_a_stable_type(program, method, path, how, status, said):
    how = dict(how)
    kind_of_body = how.pop("type", "application/json")
    sent = {name: value for name, value in how.items() if value is not None}
    headers = program.headers | {"idempotency-key": uuid4().hex, "content-type": kind_of_body}
    answer = program.client.request(method, ROOT + path, headers=headers, **sent)
    assert (answer.status_code, kind(answer)) == (status, said)
    if status == 405:
        assert answer.headers["allow"] == "GET"
        assert answer.json()["allow"] == ["GET"]


def test_nothing_is_read_of_a_body_that_comes_without_a_token(here):
    application, read = build_application(here), []

    async def watched(scope, receive, send):
        async def receiving():
            read.append(scope["path"])
            return await receive()

        await application(scope, receiving if scope["type"] == "http" else receive, send)

    client = TestClient(watched, base_url="https://localhost")
    answer = client.post(f"{ROOT}/plans", content=b"x" * 3_000_000, headers={"content-type": "application/json"})
    assert (kind(answer), read) == ("unauthorized", [])


def test_a_problem_says_where_and_never_repeats_what_was_sent(program):
    answer = program.post("/plans", {"what": "replay", "letters": {"key": ["my secret"]}})
    assert answer.json()["errors"][0]["where"] == "body.letters.key"
    assert "my secret" not in answer.text


def test_called_by_another_name_it_answers_a_problem(program):
    answer = program.client.get(f"{ROOT}/letters", headers=program.headers | {"host": "evil.example"})
    assert (answer.status_code, kind(answer)) == (421, "misdirected")


def test_every_type_of_problem_says_what_it_is(program):
    answer = program.client.get(f"{ROOT}/problems/changed")
    assert answer.json() == {"type": f"{ROOT}/problems/changed", "title": "The resource has changed.", "status": 409}


def test_answers_are_not_kept_by_who_carries_them(program):
    assert program.get("/letters").headers["cache-control"] == "no-store"


def test_two_consoles_on_one_database_do_a_request_once(program, here, record):
    record(letter(1))
    database = Database(here.desk.settings.environment.DEADLETTERS_DATABASE_URL)
    url = str(here.desk.database._engine.url)
    database.close()
    beside = Database(url)
    other = Console(DeadLetterService(here.desk.app, here.desk.settings, here.desk.routes, beside), "the other")
    client = TestClient(build_application(other), base_url="https://localhost")
    first = program.post("/letters/1/notes", {"said": "a"}, key="one")
    headers = program.headers | {"idempotency-key": "one"}
    second = client.post(f"{ROOT}/letters/1/notes", content=json.dumps({"said": "a"}), headers=headers)
    assert second.status_code == 415
    sent = first.request.content
    second = client.post(
        f"{ROOT}/letters/1/notes", content=sent, headers=headers | {"content-type": "application/json"}
    )
    assert second.content == first.content
    beside.close()
