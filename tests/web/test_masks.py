"""What is promised of masks: a role that may not see a field finds nothing of it, wherever it looks."""

import json
import re
from dataclasses import replace
from html import unescape
from uuid import uuid4

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from bridge.console import live_snapshot, shown_record
from bridge.console import record_lookup as find
from bridge.console.api import inspection_api
from bridge.console.api.api_endpoint import OPERATIONS
from bridge.console.asgi_app import build_application
from bridge.console.auth.authorization import Principal
from bridge.console.auth.browser_session import SESSION_COOKIE
from bridge.console.console import Console
from bridge.console.pages import blocking_rows, record_page
from bridge.console.pages.page_routes import PAGE_ROUTES
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.audit_log import AuditLog
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.letter_payload import read_edited_values
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import DeskUnavailable
from bridge.formats.attempt_history import AttemptNote
from bridge.inspection import record_search
from bridge.inspection.blocking_records import BlockingRecord, BlockReport, WaitingLane
from bridge.inspection.last_good_record import GoodRecordSearch
from bridge.inspection.record_content import RecordContent
from bridge.inspection.status import REDACTED
from bridge.ledger import Fate
from bridge.operator_actions import handler_halt
from bridge.operator_actions import topic_halt as commands
from bridge.settings import EnvironmentSettings
from tests.desk.letters import HANDLER, letter
from tests.web.site import session

#: What nobody finds who may not see it: of a value, a key, a header.
EMAIL, CARD, KEY, TOKEN = "zebra.one@example.org", 4_929_817_263_541_111, "zebra-key-44", "zebra-token-77"
CANARIES = re.compile(r"zebra|49298172|7a65627261|7a 65 62 72 61|emVicm", re.IGNORECASE)
MASK = "orders: buyer.email, card, @key, @header.x-token"
VALUE = json.dumps({"amount": "many", "buyer": {"email": EMAIL, "name": "Ann"}, "lines": [{"card": CARD}]}).encode()
ERROR = f"declined for {EMAIL}, card {CARD}, of {KEY} ({TOKEN})"
TRACE = f'Traceback (most recent call last):\n  File "/a.py", line 1, in pay\n    pay("{EMAIL}")\nValueError: {ERROR}\n'

#: Every address, and how it is asked for; a new one must enter this table.
ASKED = {
    "GET /": ["/"],
    "GET /topics/{topic}": ["/topics/orders", "/topics/orders?decisions=1", "/topics/orders?blocking=1"],
    "GET /topics/{topic}/decisions": ["/topics/orders/decisions"],
    "GET /topics/{topic}/blocking": ["/topics/orders/blocking"],
    "GET /topics/{topic}/records/{partition:int}/{offset:int}": [
        f"/topics/orders/records/0/{offset}{query}"
        for offset in range(4)
        for query in ("", "?value=sent", "?value=hex")
    ],
    "GET /topics/{topic}/records/{partition:int}/{offset:int}/content": [
        f"/topics/orders/records/0/{offset}/content" for offset in range(4)
    ],
    "GET /topics/{topic}/records/{partition:int}/{offset:int}/good": [
        *(f"/topics/orders/records/0/{offset}/good?by={by}" for offset in range(4) for by in ("key", "handler")),
    ],
    "GET /letters/{id:int}/good": [f"/letters/{id_}/good" for id_ in range(1, 6)],
    "GET /topics/{topic}/halt": ["/topics/orders/halt", f"/topics/orders/halt?handler={HANDLER}"],
    "GET /topics/{topic}/resume": ["/topics/orders/resume"],
    "GET /handlers/{name}": [f"/handlers/{HANDLER}"],
    "GET /handlers/{name}/policy": [f"/handlers/{HANDLER}/policy"],
    "GET /find": ["/find?q=orders-0-1", "/find?q=1", "/find?q=orders+x", "/find?q=x"],
    "GET /activity": ["/activity", "/activity?range=all"],
    "POST /activity/export": ["/activity/export"],
    "GET /audit": ["/audit"],
    "GET /groups": ["/groups", "/groups?show=all"],
    "GET /groups/fixed": ["/groups/fixed?group=1"],
    "POST /groups/fixed": ["/groups/fixed"],
    "GET /groups/{id:int}": ["/groups/1"],
    "GET /groups/{id:int}/common": ["/groups/1/common"],
    "GET /groups/{id:int}/fixed": ["/groups/1/fixed"],
    "GET /letters": ["/letters", "/letters?status=any", f"/letters?handler={HANDLER}&rows=100", "/letters?id=1"],
    "POST /letters/export": ["/letters/export"],
    "GET /letters/{id:int}": [
        *(f"/letters/{id_}{query}" for id_ in range(1, 6) for query in ("", "?value=sent", "?value=hex&from=0")),
        *("/letters/1?value=pretty&from=3", "/letters/5?failure=1", "/letters/1?elsewhere=1", "/letters/1?status=open"),
    ],
    "GET /letters/{id:int}/value": [f"/letters/{id_}/value" for id_ in range(1, 6)],
    "GET /letters/{id:int}/elsewhere": ["/letters/1/elsewhere"],
    "GET /letters/{id:int}/edit": [f"/letters/{id_}/edit" for id_ in range(1, 6)],
    "GET /plans": ["/plans"],
    "GET /plans/patch": ["/plans/patch?status=open", "/plans/patch?topic=others"],
    "POST /plans/patch": ["/plans/patch"],
    "POST /plans/patch/check": ["/plans/patch/check"],
    "GET /plans/{id:int}/differences": ["/plans/1/differences", "/plans/2/differences", "/plans/3/differences"],
    "GET /plans/{id:int}": ["/plans/1", "/plans/2", "/plans/5"],
    "GET /events": ["/events?of=overview", "/events?of=plan-1"],
    "GET /sign-in": ["/sign-in"],
    "GET /sign-in/{token}": ["/sign-in/x"],
    "GET /sign-in/oidc": ["/sign-in/oidc"],
    "GET /sign-in/oidc/back": ["/sign-in/oidc/back?code=x&state=y"],
    "GET /account": ["/account"],
    "GET /admin/users": ["/admin/users"],
    "GET /admin/users/{id:int}": ["/admin/users/1"],
    "GET /welcome/{id:int}/{token}": ["/welcome/1/x"],
    "GET /admin/unmask": ["/admin/unmask"],
    "GET /admin/webhooks": ["/admin/webhooks"],
    "GET /admin/tokens": ["/admin/tokens"],
    "GET /healthz": ["/healthz"],
    "POST /letters/{id:int}/edit": [f"/letters/{id_}/edit" for id_ in range(1, 6)],
    "POST /letters/{id:int}/check": [f"/letters/{id_}/check" for id_ in range(1, 6)],
    "POST /plans/new": ["/plans/new"],
    "POST /plans/{id:int}/apply": ["/plans/2/apply"],
    "POST /plans/{id:int}/stop": ["/plans/2/stop"],
    # What they answer is a page of those above, or nothing that is a letter's.
    "POST /topics/{topic}/halt": [],
    "POST /topics/{topic}/resume": [],
    "POST /handlers/{name}/policy": [],
    "POST /audit": [],
    "POST /audit/{topic}": [],
    "POST /groups/{id:int}/fixed": [],
    "POST /groups/{id:int}/not-fixed": [],
    "POST /groups/{id:int}/note": [],
    "POST /letters/{id:int}/notes": [],
    "POST /views": [],
    "POST /views/{id:int}/remove": [],
    "POST /letters/{id:int}/reopen": [],
    "POST /letters/{id:int}/resolve": [],
    "POST /sign-in": [],
    "POST /sign-in/{token}": [],
    "POST /account/password": [],
    "POST /account/sign-out": [],
    "POST /admin/users": [],
    "POST /admin/users/{id:int}/role": [],
    "POST /admin/users/{id:int}/scope": [],
    "POST /admin/users/{id:int}/link": [],
    "POST /admin/users/{id:int}/sign-out": [],
    "POST /admin/users/{id:int}/remove": [],
    "POST /welcome/{id:int}/{token}": [],
    "POST /admin/issued/sign-out": [],
    "POST /admin/unmask": [],
    "POST /admin/mask": [],
    "POST /admin/webhooks": [],
    "POST /admin/webhooks/{name}/test": [],
    "POST /admin/webhooks/{name}/off": [],
    "POST /admin/webhooks/{name}/on": [],
    "POST /admin/webhooks/{name}/remove": [],
    "POST /admin/tokens": [],
    "POST /admin/tokens/{id:int}/revoke": [],
    "POST /sign-out": [],
}

#: The same of the API's operations.
ASKED_BY_API = {
    "GET /letters": ["", "?status=open", f"?handler={HANDLER}&limit=200", "?id=1"],
    "GET /letters/count": [""],
    "GET /letters/export": ["", "?status=open"],
    "POST /letters/check": [""],
    "GET /letters/{id:int}": [""],
    "GET /letters/{id:int}/value": ["", "?tokens=true"],
    "GET /letters/{id:int}/elsewhere": [""],
    "POST /letters/{id:int}/check": [""],
    "POST /letters/{id:int}/edit": [""],
    "POST /letters/{id:int}/notes": [""],
    "POST /letters/{id:int}/reopen": [""],
    "POST /letters/{id:int}/resolve": [""],
    "GET /groups": ["", "?order=newest"],
    "GET /groups/{id:int}": [""],
    "POST /groups/{id:int}/fixed": [""],
    "POST /groups/{id:int}/not-fixed": [""],
    "POST /groups/{id:int}/notes": [""],
    "GET /plans": [""],
    "POST /plans": [""],
    "POST /plans/patch": [""],
    "POST /plans/copy": [""],
    "POST /plans/redrive": [""],
    "GET /plans/{id:int}/differences": [""],
    "GET /plans/{id:int}": [""],
    "GET /plans/{id:int}/outcomes": [""],
    "POST /plans/{id:int}/apply": [""],
    "POST /plans/{id:int}/stop": [""],
    "GET /status": [""],
    "GET /stats": [""],
    "GET /find": ["?q=orders-0-1", "?q=1", "?q=orders+x", "?q=x"],
    "GET /audit": [""],
    "POST /audit/{topic}": [""],
    "GET /trail": [""],
    "GET /trail/export": [""],
    "GET /halts": [""],
    "GET /topics/{topic}/records/{partition:int}/{offset:int}": [""],
    "POST /topics/{topic}/halt": [""],
    "POST /topics/{topic}/resume": [""],
    "GET /policies": [""],
    "GET /policies/{name}": [""],
    "POST /policies/{name}": [""],
    "POST /policies/{name}/simulate": [""],
}
#: What is edited around what is masked, and what programs send.
EDITED = '{"amount":1,"buyer":{"email":"[masked 1]","name":"Eve"},"lines":[{"card":"[masked 2]"}]}'
SENT = {
    "/check": {"value": {"data": EDITED}},
    "/edit": {"value": {"data": EDITED.replace("1", '"x"', 1)}},
    "/notes": {"said": "seen"},
    "/fixed": {"version": "2"},
    "/not-fixed": None,
    "/plans": {"what": "archive", "letters": {"status": ["open"]}},
    "/patch": {"letters": {"status": ["open"]}, "patch": [{"op": "copy", "from": "/buyer", "path": "/seen"}]},
    "/copy": {"letters": {"status": ["open"]}, "topic": "others"},
    "/redrive": {"topic": "orders", "from": "earliest", "key": KEY},
    "/apply": {},
    "/stop": {},
    "/halt": {"why": "a look"},
    "/resume": {"why": "a look"},
    "/{name}": {"why": "a look", "set": {"max_retries": "1"}},
    "/simulate": {"options": ["max_retries=1"]},
    "/{topic}": None,
}


def deliveries():
    """As `bridge find` has them: what failed last is quoted."""
    counts = dict.fromkeys(("failed", "lost", "postponed", "replayed"), 1)
    made = {"handler": HANDLER, "fate": "dead", "where": "orders.dlq-0-1", "since": None, "attempts": counts}
    return [{**made, "last_error": f"ValueError: {ERROR}", "task": None, "policy": ""}]


HALT = {"why": ERROR, "since": "2026-11-20T08:00:00Z", "by": HANDLER, "handler": HANDLER, "record": "orders-0-1"}
SMALL_HALT = {"why": "a person's words", "since": "2026-11-20T08:00:00Z", "by": "ann"}


class Found:
    """What `bridge find` finds."""

    def __init__(self) -> None:
        record = {"topic": "orders", "partition": 0, "offset": 1, "key": KEY, "timestamp": 1}
        self.data = [{"record": record, "deliveries": deliveries(), "halted": {**HALT, "error": ERROR}}]
        self.kept = {0: (0, 9)}
        self.looked_from: dict[int, int] = {}
        self.unreadable: dict[tuple[str, int], str] = {}
        self.limit, self.below = "", dict[int, int]()


#: What Kafka has of a topic: as it should be, unreadable, no text, and without the fields.
RECORDS = (VALUE, VALUE[:-1], b"\xff" + VALUE, b'{"amount": 1}')


def record_at(_settings, topic, partition, offset):
    """A record of these."""
    headers = (("X-Token", TOKEN.encode()), ("trace", b"1"))
    return RecordContent(topic, partition, offset, 1, KEY.encode(), RECORDS[offset], headers, first=0, end=9)


def last_good(_settings, place, below, *_, **__):
    return GoodRecordSearch(record_at(None, place[0], place[1], (below + 1) % 4), 0, below)


def blocked(_settings, _routes, topic):
    """A record that holds its partition back, and one that waits behind it."""
    head = record_at(None, topic, 0, 0)
    report = BlockReport("key", {0: BlockingRecord(0, 0, {HANDLER: Fate.DEAD}, 7, 1.0, head)})
    report.lanes = [WaitingLane(0, HANDLER, Fate.DEAD, record_at(None, topic, 0, n), (7, 8), 2) for n in range(4)]
    return report


#: An admin is shown every page and operation; the others are shown some of them.
EVERY_ROLE = [*(pytest.param(role, marks=pytest.mark.slow) for role in (Role.VIEWER, Role.OPERATOR)), Role.ADMIN]


@pytest.fixture
def masked(desk, record, monkeypatch):
    """Makes a console of such letters: as they should be, unreadable, too large, with a history, and edited."""
    for module in (find, record_search):
        monkeypatch.setattr(module, "find_record", lambda *_: Found())
    monkeypatch.setattr(find, "find_records_by_key", lambda *_: Found())
    for module in (shown_record, inspection_api):
        monkeypatch.setattr(module, "read_record_content", record_at)
    monkeypatch.setattr(record_page, "find_last_good_record", last_good)
    monkeypatch.setattr(record_page, "fetch_letter_value", lambda _, each: each)
    monkeypatch.setattr(blocking_rows, "find_blocking_records", blocked)
    monkeypatch.setattr(
        commands, "read_halt_history", lambda *_: [{**HALT, "halted": True, "at": "2026-11-20T08:00:00Z"}]
    )
    monkeypatch.setattr(commands, "read_halts", lambda settings: {"orders": {**HALT, "error": ERROR}})
    small = {"topic": "orders", "handler": HANDLER, "key": KEY, **SMALL_HALT}
    monkeypatch.setattr(handler_halt, "read_handler_halts", lambda *_: [dict(small)])
    became = {"halted": True, "changed": True, **HALT, "error": ERROR, "unpublished": None, "unmirrored": None}
    for name in ("halt_topics", "resume_topics"):
        monkeypatch.setattr(commands, name, lambda *_: {"topics": {"orders": dict(became)}})
    tokens = (("X-Token", TOKEN.encode()), ("x-token", b"\xff" + TOKEN.encode()))
    common = {"key": KEY.encode(), "error_message": ERROR, "traceback": TRACE, "headers": tokens}
    common["history"] = (AttemptNote(1, 9_000, 5, ERROR, "celery@a", "1.4"), AttemptNote(2, 10_000, 5, ERROR))
    quoting = common | {"headers": (*tokens, ("trace", f"{EMAIL};1".encode()), ("bytes", b"\xff" + EMAIL.encode()))}
    record(
        letter(1, value=VALUE, **quoting),
        letter(2, value=VALUE[:-1], cause="another", **common),
        letter(3, value=b"\xff" + VALUE, **common),
        letter(4, value=json.dumps({"buyer": {"email": EMAIL}, "x": "y" * 5_000}).encode(), **common),
        letter(5, value=VALUE, **quoting),
        largest=4_000,
    )
    record(letter(5, value=VALUE.replace(b"Ann", b"Bob"), offset=99, failed_at=20_000, **common))
    desk.mending.edit(5, VALUE.replace(b"many", b"12"), "kim", force=True)
    patch = [{"op": "add", "path": "/buyer/email", "value": EMAIL}, {"op": "add", "path": "/amount", "value": "x"}]
    desk.mending.patch(LetterFilter(ids=(1,)), ValuePatch.read(json.dumps(patch)), PlanOptions(), "kim")
    desk.mending.patch(LetterFilter(ids=(1,)), ValuePatch.read(json.dumps(patch)), PlanOptions(), "kim", force=True)
    desk.plans.draft(
        PlanKind.ARCHIVE, LetterFilter(text="zebra", key=KEY.encode(), headers=(("X-Token", TOKEN),)), "kim"
    )
    desk.plans.draft(PlanKind.ARCHIVE, LetterFilter(since=15_000, values=(("buyer.email", EMAIL),)), "kim")

    made = []

    def opens(role, **environment):
        url = desk.settings.environment.DEADLETTERS_DATABASE_URL
        said = {"DEADLETTERS_MASK": MASK, "DEADLETTERS_DATABASE_URL": url}
        settings = replace(desk.settings, environment=EnvironmentSettings(**said | environment))
        console = Console(replace(desk, settings=settings), "shop @ localhost:1")
        halted = {"halted": {}, "halted_handlers": [{**small, "key": REDACTED, "waiting": 1, "waiting_deliveries": 9}]}
        console.status_cache = make_status_cache(lambda: {"problems": [], "unanswered": [], **halted})
        console.live = live_snapshot.LiveSnapshots(lasts=0.01)
        browser = TestClient(build_application(console), base_url="https://localhost", follow_redirects=False)
        cookie = session(console, str(role), role)
        browser.cookies.set(SESSION_COOKIE, cookie)
        browser.token = console.sessions.who(cookie).token  # type: ignore[attr-defined, union-attr]
        browser.console = console  # type: ignore[attr-defined]
        made.append(browser)
        return browser

    yield opens
    for each in made:
        each.close()


def ask(browser, address, path, **form):
    if address.startswith("GET"):
        return browser.get(path)
    return browser.post(path, data={"token": browser.token, **form})


def test_every_address_is_asked_for_what_it_shows():
    assert {f"{page.method} {page.path}" for page in PAGE_ROUTES} == set(ASKED)


def test_causes_in_the_list_of_groups_are_named_without_what_is_masked(masked):
    page = masked(Role.VIEWER).get("/groups").text
    assert page.count('class="cause"') == 2
    assert EMAIL not in page


@pytest.mark.parametrize("role", EVERY_ROLE)
def test_nothing_of_a_masked_field_is_on_any_page(masked, role):
    browser = masked(role)
    seen = 0
    form = {"value": EDITED, "what": "archive", "scope": "filter", "text": "x", "do": "check"}
    for address, paths in ASKED.items():
        for path in paths:
            answer = ask(browser, address, path, **form)
            said = unescape(answer.text) + repr(answer.headers)
            found = CANARIES.search(said)
            assert found is None, (path, said[max(0, found.start() - 200) : found.end()])
            assert answer.status_code < 500 or path.startswith("/handlers"), (path, answer.text)
            seen += "[masked" in said
    assert seen > 20


class Program:
    """A program with a token."""

    def __init__(self, browser, role):
        _, secret = browser.console.desk.tokens.make(f"nightly {role} {uuid4().hex[:6]}", role, "ann")
        self._client, self._said = browser, {"authorization": f"Bearer {secret}"}

    def get(self, path):
        return self._client.get(f"/api/v1{path}", headers=self._said)

    def post(self, path, body=None, **headers):
        said = {**self._said, "idempotency-key": uuid4().hex, **headers}
        return self._client.post(f"/api/v1{path}", json=body, headers=said)


def ask_api(program, address, query):
    """Of each letter, group and plan, where it is of one."""
    method, path = address.split(" ")
    body = SENT.get(path[path.rindex("/") :])
    if path == "/letters/check":
        body = {"letters": {"status": ["open"]}}
    filled = path.replace("{topic}", "orders").replace("{name}", HANDLER).replace("{partition:int}/{offset:int}", "0/1")
    for id_ in range(1, 6) if "{id:int}" in path else (1,):
        at = filled.replace("{id:int}", str(id_)) + query
        yield at, program.get(at) if method == "GET" else program.post(at, body, **{"if-match": "*"})


def test_every_operation_of_the_api_is_asked_for_what_it_says():
    assert {f"{each.method} {each.path}" for each in OPERATIONS} == set(ASKED_BY_API)


@pytest.mark.parametrize("role", EVERY_ROLE)
def test_nothing_of_a_masked_field_is_in_any_answer_of_the_api(masked, desk, role):
    browser = masked(role)
    with desk.database.writing() as connection:
        why = f"its handler does not take it: {ERROR}"
        connection.execute(update(tables.items).values(state="skipped", why=why))
        connection.execute(update(tables.plans).where(tables.plans.c.id == 1).values(state="done"))
    program = Program(browser, role)
    seen, answered = 0, set()
    for address, queries in ASKED_BY_API.items():
        for query in queries:
            for path, answer in ask_api(program, address, query):
                lines = answer.text.splitlines() if answer.text[:1] in "{[" else []
                said = answer.text + json.dumps([json.loads(line) for line in lines]) + repr(answer.headers)
                found = CANARIES.search(said)
                assert found is None, (path, said[max(0, found.start() - 200) : found.end()])
                assert answer.status_code != 500, (path, answer.text)
                seen += "[masked" in said
                answered |= {address} if answer.status_code < 300 else set()
    assert seen > 10
    assert answered >= {each for each in ASKED_BY_API if each.startswith("GET")} - {
        "GET /policies",
        "GET /policies/{name}",
    }


def test_a_program_is_not_given_the_bytes_of_what_is_masked_and_one_that_may_see_it_is(masked):
    hidden = Program(masked(Role.ADMIN), Role.ADMIN).get("/letters/1/value")
    assert (hidden.status_code, hidden.headers["content-type"]) == (403, "application/problem+json")
    seeing = Program(masked(Role.ADMIN, DEADLETTERS_MASK_NOT_FOR="admin"), Role.ADMIN)
    assert seeing.get("/letters/1/value").content == VALUE
    assert EMAIL in seeing.get("/letters/1").text
    assert EMAIL in seeing.get("/letters").text


def test_a_program_s_token_sees_nothing_more_while_its_owner_has_unmasked(masked):
    browser = masked(Role.ADMIN)
    program = Program(browser, Role.ADMIN)
    assert unmask(browser, why="look").status_code == 303
    assert EMAIL in browser.get("/letters/1").text
    assert EMAIL not in program.get("/letters/1").text


@pytest.mark.parametrize(
    "query",
    [
        "text=zebra",
        "text=nothing",
        "key=x",
        "header=x-token=1",
        "value=card=1",
        "value=buyer.email=a",
        "value=a.CARD=1",
    ],
)
def test_a_program_s_filter_does_not_tell_what_is_masked(masked, query):
    program = Program(masked(Role.OPERATOR), Role.OPERATOR)
    name, _, value = query.partition("=")
    asked = {name: [value] if name in ("header", "value") else value}
    answers = [
        program.get(f"/letters?{query}"),
        program.get(f"/letters/count?{query}"),
        program.post("/plans", {"what": "archive", "letters": asked}),
        program.post(f"/policies/{HANDLER}/simulate", {"options": [], "letters": asked}),
    ]
    for answer in answers:
        assert answer.status_code == 422, answer.text
        assert "does not see every field" in answer.json()["detail"]
    assert program.get(f"/letters?{query}&topic=mails").status_code == 200


def test_a_program_edits_around_what_is_masked(masked):
    browser = masked(Role.OPERATOR)
    program = Program(browser, Role.OPERATOR)
    text = program.get("/letters/1/value?tokens=true").text
    typed = {"value": {"data": text.replace('"many"', "12")}}
    checked = program.post("/letters/1/check", typed).json()
    assert '+  "amount": 12' in checked["difference"]
    assert "email" not in re.sub(r"^ .*$", "", checked["difference"], flags=re.MULTILINE)
    made = program.post("/letters/1/edit", {**typed, "why": "amount", "force": True})
    assert made.status_code == 201, made.text
    with browser.console.desk.database.reading() as connection:
        ((_, value),) = read_edited_values(connection, made.json()["id"], 1)
    assert json.loads(value or b"") == json.loads(VALUE) | {"amount": 12}


@pytest.mark.parametrize("data", [EMAIL, "[masked 2]", "[masked]"])
def test_a_program_s_guess_in_a_token_s_place_is_not_compared(masked, data):
    program = Program(masked(Role.OPERATOR), Role.OPERATOR)
    text = json.dumps({"amount": "many", "buyer": {"email": data, "name": "Ann"}, "lines": [{"card": "[masked 2]"}]})
    for act in ("check", "edit"):
        refused = program.post(f"/letters/1/{act}", {"value": {"data": text}})
        assert refused.status_code == 422
        assert "[masked 1] is gone" in refused.text or "another place" in refused.text
    assert program.post("/letters/1/edit", {"value": None, "why": "x", "force": True}).status_code == 422


def test_a_program_sends_no_token_in_the_place_of_a_value_that_is_not_here(masked):
    program = Program(masked(Role.OPERATOR), Role.OPERATOR)
    assert program.get("/letters/4").json()["kept"] is False
    refused = program.post("/letters/4/edit", {"value": {"data": EDITED}, "why": "x", "force": True})
    assert refused.status_code == 422
    assert "too large for the database" in refused.json()["detail"]


def test_a_program_that_does_not_see_all_of_letters_neither_patches_nor_copies_them(masked):
    program = Program(masked(Role.OPERATOR), Role.OPERATOR)
    for wish in ("patch", "copy"):
        refused = program.post(f"/plans/{wish}", SENT[f"/{wish}"])
        assert refused.status_code == 422
        assert f"it cannot {wish} them" in refused.json()["detail"]
    refused = program.post("/plans/redrive", SENT["/redrive"])
    assert refused.status_code == 422
    assert "not searched by them" in refused.json()["detail"]
    others = {"letters": {"topic": ["mails"]}, "patch": [{"op": "remove", "path": "/x"}]}
    assert "mails" in program.post("/plans/patch", others).json()["detail"]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_letters_leave_by_the_list_without_what_is_masked(masked, role):
    browser = masked(role)
    answer = browser.post("/letters/export", data={"token": browser.token, "scope": "filter", "status": "any"})
    assert answer.text.count('"masked": true') == 5
    assert not CANARIES.search(answer.text)
    answer = browser.post("/letters/export", data={"token": browser.token, "scope": "filter", "key": KEY})
    assert answer.status_code == 400


def test_an_export_that_is_masked_says_so_and_is_no_import(masked, desk):
    _, *lines = Program(masked(Role.OPERATOR), Role.OPERATOR).get("/letters/export?status=open").text.splitlines()
    found = [json.loads(line) for line in lines]
    assert {each["masked"] for each in found} == {True}
    assert found[0]["value"]["text"].count("[masked]") == 2
    assert "Ann" in found[0]["value"]["text"]
    taken = desk.transfers.take([line.encode() for line in lines], "ann", "masked.jsonl")
    assert (taken.added, taken.known, taken.refused) == (0, 0, len(lines))
    seeing = Program(masked(Role.ADMIN, DEADLETTERS_MASK_NOT_FOR="admin"), Role.ADMIN)
    whole = seeing.get("/letters/export?status=open").text.splitlines()[1:]
    assert desk.transfers.take([line.encode() for line in whole], "ann", "whole.jsonl").known == len(lines)


def test_who_may_see_all_of_it_finds_it_on_these_pages(masked):
    browser = masked(Role.ADMIN, DEADLETTERS_MASK_NOT_FOR="admin")
    for path in (
        "/letters/1",
        "/letters/1?value=hex",
        "/letters",
        "/find?q=orders-0-1",
        "/letters/1/edit",
        "/groups/1",
    ):
        assert CANARIES.search(browser.get(path).text), path
    assert browser.get("/letters/1/value").content == VALUE
    assert "masked" not in browser.get("/letters/1").text


def test_without_the_setting_nothing_is_masked(masked):
    browser = masked(Role.VIEWER, DEADLETTERS_MASK="")
    assert browser.get("/letters/1/value").content == VALUE
    assert EMAIL in browser.get("/letters/1").text
    assert browser.get("/letters?text=zebra").status_code == 200


def test_a_masked_letter_says_how_many_parts_are_and_is_no_file(masked):
    browser = masked(Role.OPERATOR)
    page = browser.get("/letters/1").text
    assert "5</span> parts" in page or "5 parts of this letter are masked" in re.sub(r"<[^>]+>", "", page)
    assert "Ann" in page
    assert "/admin/unmask" not in page
    assert browser.get("/letters/1/value").status_code == 403
    assert "cannot be parsed for its masks" in browser.get("/letters/2").text


@pytest.mark.parametrize(
    "query",
    [
        "text=zebra",
        "text=nothing",
        "key=x",
        "header=x-token=1",
        "header=X-TOKEN=1",
        "value=card=1",
        "value=buyer.email=a",
        "value=buyer.email.host=a",
        "value=cards.Card.digits=1",
    ],
)
def test_a_filter_does_not_tell_what_is_masked(masked, query):
    browser = masked(Role.OPERATOR)
    answer = browser.get(f"/letters?{query}")
    assert answer.status_code == 400
    assert "does not see every field" in answer.text
    name, _, value = query.partition("=")
    new = browser.post("/plans/new", data={"token": browser.token, "what": "archive", "scope": "filter", name: value})
    assert new.status_code == 400
    assert browser.get(f"/letters?{query}&topic=mails").status_code == 200


def test_a_key_is_not_looked_for_where_it_is_masked(masked):
    browser = masked(Role.OPERATOR)
    for asked in (KEY, f"orders {KEY}", "no-such-key"):
        answer = browser.get("/find", params={"q": asked})
        assert answer.status_code == 404
        assert "your role may not see the keys of this topic" in answer.text


def test_an_operator_edits_around_what_is_masked(masked):
    browser = masked(Role.OPERATOR)
    page = browser.get("/letters/1/edit").text
    text = unescape(re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)[0])
    typed = text.replace('"many"', "12")
    checked = browser.post("/letters/1/edit", data={"token": browser.token, "value": typed, "do": "check"})
    (shown,) = re.findall(r'name="shown" value="(\w+)"', checked.text)
    form = {"token": browser.token, "value": typed, "do": "send", "shown": shown, "why": "amount", "force": "on"}
    sent = browser.post("/letters/1/edit", data=form)
    assert sent.status_code == 303, sent.text
    with browser.console.desk.database.reading() as connection:
        ((_, value),) = read_edited_values(connection, int(sent.headers["location"].rpartition("/")[2]), 1)
    assert value == VALUE.replace(b'"many"', b"12").replace(b", ", b",").replace(b": ", b":")
    for page in (sent.headers["location"], "/letters/1", "/plans"):
        assert not CANARIES.search(browser.get(page).text)


@pytest.mark.parametrize("typed", [EMAIL, "zebra.two@example.org", "[masked 2]"])
def test_a_guess_in_a_token_s_place_is_not_compared(masked, typed):
    browser = masked(Role.OPERATOR)
    text = json.dumps({"amount": "many", "buyer": {"email": typed, "name": "Ann"}, "lines": [{"card": "[masked 2]"}]})
    answer = browser.post("/letters/1/check", data={"token": browser.token, "value": text})
    assert "[masked 1] is gone" in answer.text or "another place" in answer.text
    assert "Nothing is changed" not in answer.text


def unmask(browser, **form):
    return browser.post("/admin/unmask", data={"token": browser.token, **form})


def test_an_admin_sees_it_for_15_minutes_with_a_reason_and_the_trail_says_so(masked):
    browser = masked(Role.ADMIN)
    now = browser.console.masking.ticks()
    browser.console.masking.ticks = lambda: now
    clock = browser.console.clock
    assert "/admin/unmask?then=/letters/1" in browser.get("/letters/1").text
    assert unmask(browser).status_code == 400
    assert EMAIL not in browser.get("/letters/1").text
    answer = unmask(browser, why="a customer asks", then="/letters/1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/letters/1")
    page = browser.get("/letters/1").text
    assert EMAIL in page
    assert "You see masked values" in page
    assert browser.get("/letters/1/value").content == VALUE
    assert "a customer asks" in browser.get("/activity?did=unmask").text
    # That the machine's clock is set changes nothing of that.
    for away in (-86_400_000, 86_400_000):
        browser.console.clock = lambda away=away: clock() + away
        assert browser.console.masking.until(Principal("admin", Role.ADMIN, browser.token)) == pytest.approx(
            browser.console.clock() + 15 * 60_000, abs=60_000
        )
    browser.console.clock = clock
    browser.console.masking.ticks = lambda: now + 15 * 60_000
    assert EMAIL not in browser.get("/letters/1").text
    assert browser.get("/letters/1/value").status_code == 403


def test_it_is_of_one_session_and_ends_when_the_admin_says_so(masked):
    browser = masked(Role.ADMIN)
    unmask(browser, why="look")
    other = TestClient(build_application(browser.console), base_url="https://localhost", follow_redirects=False)
    other.cookies.set(SESSION_COOKIE, session(browser.console, "admin", Role.ADMIN))
    assert EMAIL not in other.get("/letters/1").text
    assert EMAIL in browser.get("/letters/1").text
    browser.post("/admin/mask", data={"token": browser.token})
    assert EMAIL not in browser.get("/letters/1").text
    other.close()


def test_where_the_trail_cannot_be_written_nothing_is_shown(masked, monkeypatch):
    def away(*_):
        raise DeskUnavailable("The database does not answer.")

    browser = masked(Role.ADMIN)
    monkeypatch.setattr(AuditLog, "add", away)
    assert unmask(browser, why="look").status_code == 503
    assert EMAIL not in browser.get("/letters/1").text


def test_a_setting_switches_it_off_for_good(masked):
    browser = masked(Role.ADMIN, DEADLETTERS_UNMASK="no")
    assert "/admin/unmask" not in browser.get("/letters/1").text
    assert browser.get("/admin/unmask").status_code == 403
    assert unmask(browser, why="look").status_code == 403
    assert EMAIL not in browser.get("/letters/1").text


def test_a_role_from_which_on_all_is_seen(masked):
    assert EMAIL in masked(Role.OPERATOR, DEADLETTERS_MASK_NOT_FOR="operator").get("/letters/1").text
    assert EMAIL not in masked(Role.VIEWER, DEADLETTERS_MASK_NOT_FOR="operator").get("/letters/1").text
