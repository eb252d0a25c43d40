"""An account with a scope sees, counts and changes the letters of its topics and groups, and nothing of others.

Every page and every operation of the API is asked, with all ids that there are. All that others have bears a mark,
which no answer may have, and nothing that others have may change. An account without a scope is asked the same, so
that the mark is there to be found.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from sqlalchemy import select
from starlette.testclient import TestClient

from bridge.console import audit_cache, record_lookup, shown_record
from bridge.console.api import inspection_api
from bridge.console.api.api_endpoint import OPERATIONS
from bridge.console.asgi_app import build_application
from bridge.console.audit_cache import AuditCount
from bridge.console.auth.authorization import ScopeRule
from bridge.console.auth.browser_session import SESSION_COOKIE
from bridge.console.console import Console
from bridge.console.pages import blocking_rows, record_page
from bridge.console.pages.page_routes import PAGE_ROUTES
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import audit_rows, plan_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope
from bridge.deadletters.replay.handled_sample import HandledRecords
from bridge.errors import KafkaUnavailable, NoSuchRecord
from bridge.handler_routes import Handler, Routes
from bridge.inspection import record_search
from bridge.inspection.record_content import RecordContent
from bridge.inspection.topic_audit import TopicAudit
from bridge.operator_actions import handler_halt, handler_policy, topic_halt
from bridge.problems.problem import Problem
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.desk.letters import HANDLER, letter
from tests.servers.postgres import PostgresServer
from tests.web.signed_in_console import desk_of
from tests.web.site import session
from tests.web.status_answer import BRIDGE, WORKER, counts, status

#: What others have bears this mark; `OTHER` are their names, which only an answer to an address with them may have.
MARK = "XMARKX"
OTHER = ("salaries", "salaries.handlers.pay", "otherteam")
OWN = "ours-and-seen"
SCOPE = LetterScope(("ord*",), ("shop",))
PARAMETER = re.compile(r"{([^}:]+)[^}]*}")

#: Fields of all forms, and the bodies of all operations that take one: the right ones for an act on a fresh thing.
FORM = {
    "scope": "filter",
    "status": "any",
    "what": "archive",
    "said": "seen",
    "note": "seen",
    "why": "a reason",
    "version": "9.9",
    "act": " 0 0",
    "seen": "",
    "value": "{}",
    "patch": '[{"op": "add", "path": "/amount", "value": 1}]',
    "option": "max_retries",
    "name": "somebody",
    "role": "admin",
    "days": "9",
    "link": "x" * 43,
    "from": "/letters",
}
#: Of forms that select letters, whose other fields are a filter.
SELECTION = {name: FORM[name] for name in ("scope", "status", "what", "from", "patch", "why")}
OPEN = {"letters": {"status": ["open"]}}
BODIES: dict[str, Any] = {
    "checkValue": {"value": {"data": "{}"}},
    "checkLetters": OPEN,
    "editLetter": {"value": {"data": '{"amount": 1}'}, "why": "a reason", "force": True},
    "noteOnLetter": {"said": "seen"},
    "reopenLetter": {"why": "a reason"},
    "resolveLetter": {"why": "a reason"},
    "markFixed": {"version": "9.9"},
    "unmarkFixed": None,
    "noteOnGroup": {"said": "seen"},
    "makePlan": {"what": "archive", **OPEN},
    "planPatch": {**OPEN, "patch": [{"op": "add", "path": "/amount", "value": 1}], "why": "a reason"},
    "planCopy": {**OPEN, "topic": "copies", "why": "a reason"},
    "planRedrive": {"topic": "orders", "since": "2h", "until": "1h", "why": "a reason"},
    "applyPlan": {"why": "a reason", "count": 1},
    "stopPlan": {"why": "a reason"},
    "audit": None,
    "haltTopic": {"why": "a reason"},
    "resumeTopic": {"why": "a reason"},
    "changePolicy": {"set": {"max_retries": "3"}, "why": "a reason"},
    "simulatePolicy": {"options": ["max_retries=3"]},
}
QUERIES = {
    "/letters": ("", "?status=any", "?status=any&rows=100&died-again=yes", "?status=any&reason=exhausted"),
    "/groups/fixed": ("?group=1&group=2&group=3&group=4",),
    "/groups": ("", "?show=all", "?show=marked+as+fixed"),
    "/find": tuple(
        f"?q={text}"
        for text in (
            *("salaries-0-11", "salaries+4711", "salaries+2026-11-21T01:58:04Z"),
            *("4711", "orders+4711", "orders+2026-11-21T01:58:04Z", "1", "plan+1", "orders-0-1"),
        )
    ),
    "/letters/{id:int}": ("", "?status=any&elsewhere=1&kafka=1"),
    "/letters/count": ("", "?text=no"),
    "/trail": ("", "?limit=100"),
    "/events": ("?of=overview", "?of=topic-orders"),
}


class Others:
    """All that others have: ids of their rows by table, and the rows as they are now."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.before = self.rows()

    def rows(self) -> dict[str, Any]:
        with self.database.reading() as connection:
            return {
                table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
                for table in tables.metadata.sorted_tables
                if table.name in ("groups", "cause_fixes", "kinds", "letters", "failures", "edits", "plans", "items")
            }


def foreign(source: int, *, topic: str = "salaries", group: str = "shop", **other: Any) -> Any:
    """A letter of another topic or of another consumer group: all of its contents are marked."""
    marked = {
        "key": f"{MARK}-key".encode(),
        "value": f'{{"{MARK}": "{MARK} value no"}}'.encode(),
        "headers": ((f"{MARK}-header", MARK.encode()),),
        "error_message": f"{MARK} error no",
        "traceback": f'Traceback (most recent call last):\n  File "/{MARK}.py", line 1, in pay\nValueError: {MARK}\n',
        "version": f"{MARK}-version",
        "failed_at": 90_000_000,
        "consumer_group": group,
    }
    made = letter(source, **marked | other)
    identity = made.identity._replace(topic=topic, consumer_group=group)
    return replace(made, identity=identity, kind=made.kind._replace(topic=topic), topic=f"{topic}.dlq")


class World:
    """A desk with the letters, plans and notes of two teams, of which one has the accounts of the test."""

    def __init__(self, desk: DeadLetterService) -> None:
        self.desk = desk
        self.console = Console(desk, "shop @ localhost:1")
        self.application = build_application(self.console)
        now = int(self.console.clock())
        with desk.database.writing() as connection:
            LetterWriter(connection, IdCache(), now, 1_000_000).record(
                [
                    *(letter(at, consumer_group="shop", error_message=f"{OWN} no") for at in (1, 2)),
                    letter(3, consumer_group="shop", error_message=OWN, place="a.py:own"),
                    foreign(11, handler=OTHER[1], error_class=f"{MARK}.Error", place=f"{MARK}.py:pay"),
                    # Of the same failure group as the first two, by another team that runs the same code.
                    foreign(12, topic="orders", group="otherteam"),
                    foreign(13, topic="salaries", group="otherteam"),
                ]
            )
        self.letters = {each.id: each for each in desk.letters.page(ALL_LETTERS, 100).letters}
        self.own = [id_ for id_, each in self.letters.items() if OWN in each.error_message]
        self.foreign = [id_ for id_ in self.letters if id_ not in self.own]
        self.groups = [each.id for each in desk.groups.all()]
        (self.shared,) = {self.letters[id_].group for id_ in self.own} & {
            self.letters[id_].group for id_ in self.foreign
        }
        plans = [self._plan(self.own[:1], OWN), self._plan(self.foreign, MARK)]
        plans.append(self._plan([self.own[0], self.foreign[0]], MARK))
        with desk.database.writing() as connection:
            plans.append(plan_rows.add_plan(connection, PlanKind.REPLAY, "eve", MARK, {}, PlanOptions())[0])
            audit_rows.write_entry(connection, now, "eve", "halt", f"halted salaries: {MARK}")
            audit_rows.write_entry(
                connection, now, "eve", "note", f"{MARK} note", letter_id=self.foreign[0], letter=MARK
            )
            audit_rows.write_entry(connection, now, "eve", "note", f"{MARK} note", group_id=self.shared)
            audit_rows.write_entry(
                connection, now, "eve", "note", f"{OWN} note", letter_id=self.own[0], letter="orders-0-1"
            )
        self.plans = plans
        self.others = Others(desk.database)

    def _plan(self, ids: list[int], why: str) -> int:
        return self.desk.plans.make(PlanKind.ARCHIVE, LetterFilter(ids=tuple(ids)), PlanOptions(), "eve", why).id

    def browser(self, role: Role, scope: LetterScope = SCOPE) -> TestClient:
        """A browser in which somebody with the scope is signed in."""
        name = f"{role}-{'scoped' if scope else 'whole'}"
        client = TestClient(self.application, base_url="https://localhost", follow_redirects=False)
        cookie = session(self.console, name, role)
        if scope:
            self.desk.users.give_scope(name, scope, "the test")
            cookie = session(self.console, name, role)
        client.cookies.set(SESSION_COOKIE, cookie)
        who = self.console.sessions.who(cookie)
        assert who is not None
        assert who.scope == scope
        client.token = who.token  # type: ignore[attr-defined]
        return client

    def program(self, role: Role, scope: LetterScope = SCOPE) -> TestClient:
        """A program with a token of the scope."""
        secret = self.desk.tokens.make(uuid4().hex, role, "the test", scope=scope)[1]
        headers = {"authorization": f"Bearer {secret}"}
        return TestClient(self.application, base_url="https://localhost", headers=headers)

    def addresses(self, path: str) -> list[str]:
        """All addresses of a path: with every id, name and topic that there is."""
        values: dict[str, list[Any]] = {
            "id": [*({*self.letters, *self.groups, *self.plans, 999})],
            "topic": ["orders", OTHER[0]],
            "name": [HANDLER, OTHER[1]],
            "token": ["x" * 43],
            "partition": [0],
            "offset": [11],
        }
        found = [path]
        for name in PARAMETER.findall(path):
            found = [
                re.sub(r"{" + name + "[^}]*}", str(value), each, count=1) for each in found for value in values[name]
            ]
        return [address + query for address in found for query in QUERIES.get(path, ("",))]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty desk, in each of the databases."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(request.getfixturevalue('empty_desk'), tmp_path / 'letters.db')}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database(template=request.getfixturevalue("console_template"))


@pytest.fixture
def world(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The desk, of whose Kafka and Redis is known what is said here."""
    database = Database(url)
    desk_of(database, monkeypatch)
    _answer_for_servers(monkeypatch)
    environment = EnvironmentSettings(DEADLETTERS_DATABASE_URL=url, BRIDGE_GROUP="shop")
    settings = Settings(FileSettings(), environment, "redis://localhost:1", {"bootstrap.servers": "localhost:1"})
    monkeypatch.setattr(Settings, "ledger_url", "redis://localhost:1")
    with Celery("shop", set_as_current=False) as app:
        app.conf.update(DEFAULTS)

        def run(order: object) -> None:
            raise AssertionError("it runs")

        declare_handler(app, ("orders",), {"name": HANDLER})(run)
        declare_handler(app, ("salaries",), {"name": OTHER[1]})(run)
        routes = Routes(
            {
                HANDLER: Handler(HANDLER, ("orders",), "q", 1, 0.0),
                OTHER[1]: Handler(OTHER[1], ("salaries",), "other-queue", 1, 0.0),
            }
        )
        made = World(DeadLetterService(app, settings, routes, database))
        made.console.status_cache = make_status_cache(_build_status)
        # A stream ends after its first event.
        made.console.live.lasts = made.console.live.every = 0.01
        made.console.audit_cache._last = {each: _audit(each) for each in ("orders", "salaries")}  # type: ignore[union-attr]
        yield made
    database.close()


def _audit(topic: str) -> AuditCount:
    return AuditCount(TopicAudit(topic, []), 1, 1.0)


def _build_status() -> Any:
    def about(words: str, **of: Any) -> Problem:
        return Problem(words, "dying", words, **of)

    return status(
        [
            about(f"{OWN} problem", topic="orders"),
            about(f"{MARK} problem", topic="salaries"),
            about(f"{MARK} of a handler", handler=OTHER[1]),
            about(f"{MARK} of nobody"),
            about("orders waits, as salaries does", topic="orders"),
        ],
        topics={"orders": {"0": {"committed": 1, "end": 9, "lag": 8}}, "salaries": {}},
        bridges={
            "host:1": {**BRIDGE, "topics": ["orders", "salaries"], "paused": {"salaries-0": MARK}, "obstacles": [MARK]}
        },
        workers={
            "host:2": WORKER,
            "host:3": {**WORKER, "queues": ["other-queue"], "handler_versions": {OTHER[1]: MARK}},
        },
        queues={"q": {"messages": 1, "workers": 1, "backlog": None}, "other-queue": {"messages": 1, "workers": 1}},
        oldest=[{"topic": "salaries", "handler": OTHER[1], "seconds": 1.8}],
        parked=[
            {"source": "salaries", "topic": f"salaries.retry.{MARK}", "delay": 300, "records": 22, "use": "needed"}
            | {"next_due": None, "late_seconds": 0.0}
        ],
        halted={"salaries": {"why": MARK, "by": "eve", "since": "2026-11-21T01:58:04Z"}},
        halted_handlers=[{"topic": "salaries", "handler": OTHER[1], "key": MARK, "why": MARK, "by": "eve"}],
        policies={OTHER[1]: MARK},
        breakers={MARK: {"state": "open", "handlers": [OTHER[1]], "why": MARK, "since": "2026-11-21T01:58:04Z"}},
        limits={MARK: {"handlers": [OTHER[1]]}},
        counts=[counts(), {**counts(), "topic": "salaries", "handler": OTHER[1]}],
        unknown=[MARK],
        new_field=MARK,
    )


def _answer_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka and Redis have records, halts and policies of both teams; nothing is done there to what is others'."""

    def halts(settings: Any) -> Any:
        common = {"by": "eve", "since": "2026-11-21T01:58:04Z"}
        return {"salaries": {"why": MARK, **common}}

    def do_halt(app: Any, settings: Any, routes: Any, topics: Any, why: str, by: str) -> Any:
        require_own(topics)
        return {"topics": {topics[0]: {"halted": True, "changed": True, "why": why, "by": by, "since": "2026-11-21"}}}

    for name, answer in (("read_halts", halts), ("halt_topics", do_halt), ("resume_topics", do_halt)):
        monkeypatch.setattr(topic_halt, name, answer)
    monkeypatch.setattr(handler_halt, "read_handler_halts", lambda settings, topic=None: [])
    _answer_for_policies(monkeypatch)
    _answer_for_records(monkeypatch)


def require_own(*names: Any) -> None:
    """Require that something is done to what is not others'."""
    assert not any(name in repr(names) for name in OTHER), f"something was done to {names}"


def _answer_for_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    def policies(app: Any, settings: Any, routes: Any, name: Any = None) -> Any:
        own: dict[str, Any] = {"policy": {}, "changed": {}, "fault": None}
        return {HANDLER: own, OTHER[1]: {**own, "fault": MARK}}

    def do_policy(app: Any, settings: Any, routes: Any, name: str, *_: Any) -> Any:
        require_own(name)
        return {"policy": {}, "changed": {}, "fault": None, "tiers": {}}

    monkeypatch.setattr(handler_policy, "read_policies", policies)
    monkeypatch.setattr(handler_policy, "set_policy", do_policy)
    monkeypatch.setattr(handler_policy, "read_policy", lambda *_: ({"policy": {}, "changed": {}, "fault": None}, []))
    monkeypatch.setattr(handler_policy, "read_policy_history", lambda *_: [])


def _answer_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(app: Any, settings: Any, routes: Any, topic: str, *_: Any) -> Any:
        require_own(topic)
        return record_search.SearchResult([], {}, {}, {})

    def history(settings: Any, name: str) -> Any:
        require_own(name)
        return []

    monkeypatch.setattr(topic_halt, "read_halt_history", history)

    def audit(app: Any, settings: Any, routes: Any, topic: str) -> TopicAudit:
        require_own(topic)
        return TopicAudit(topic, [])

    monkeypatch.setattr(audit_cache, "audit_topic", audit)
    for name in ("find_record", "find_records_by_key", "find_records_at_time"):
        monkeypatch.setattr(record_lookup, name, record)
        monkeypatch.setattr(record_search, name, record)

    def content(settings: Any, topic: str, partition: int, offset: int) -> RecordContent:
        require_own(topic)
        raise NoSuchRecord(f"There is no {OWN} record.")

    def good(settings: Any, place: Any, *_: Any, **__: Any) -> Any:
        require_own(place)
        raise NoSuchRecord("There is no good record.")

    def blocking(settings: Any, routes: Any, topic: str) -> Any:
        require_own(topic, routes)
        raise KafkaUnavailable("Kafka does not answer.")

    def sample(self: Any, origins: Any, moments: Any, reading: Any) -> str:
        require_own(*origins)
        return ""

    monkeypatch.setattr(HandledRecords, "_read", sample)
    monkeypatch.setattr(shown_record, "read_record_content", content)
    monkeypatch.setattr(inspection_api, "read_record_content", content)
    monkeypatch.setattr(record_page, "find_last_good_record", good)
    monkeypatch.setattr(blocking_rows, "find_blocking_records", blocking)


def ask_pages(world: World, browser: TestClient, role: Role) -> list[tuple[str, Any]]:
    """The answers of all pages that a role may ask, with all their addresses."""
    found = []
    for page in PAGE_ROUTES:
        if page.path in ("/sign-out", "/account/password", "/account/sign-out") or role < page.role or not page.role:
            continue
        for address in world.addresses(page.path):
            if page.method == "GET":
                found.append((f"GET {address}", browser.get(address)))
            else:
                fields: dict[str, Any] = dict(
                    SELECTION
                    if (page.path.startswith("/plans/") and "{" not in page.path) or page.path.endswith("export")
                    else FORM
                )
                if page.path == "/groups/fixed":
                    fields = {**FORM, "group": world.groups, **{f"act-{each}": " 0 0" for each in world.groups}}
                body = {**fields, "token": browser.token}  # type: ignore[attr-defined]
                found.append((f"POST {address}", browser.post(address, data=body)))
    return found


def ask_api(world: World, program: TestClient, role: Role) -> list[tuple[str, Any]]:
    """The answers of all operations that a role may ask, with all their addresses."""
    found = []
    for each in OPERATIONS:
        if role < each.role:
            continue
        for address in world.addresses(each.path):
            headers = {"idempotency-key": uuid4().hex, "if-match": "*"}
            body = {} if each.method == "GET" or BODIES[each.name] is None else {"json": BODIES[each.name]}
            answer = program.request(each.method, f"/api/v1{address}", headers=headers, **body)
            found.append((f"{each.method} /api/v1{address}", answer))
    return found


def find_leaks(answers: list[tuple[str, Any]]) -> list[str]:
    """The addresses whose answers have something of others."""
    return [
        address
        for address, answer in answers
        for word in (MARK, *OTHER)
        if word in answer.text and (word == MARK or not any(each in address for each in OTHER))
    ]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_no_page_shows_what_is_outside_the_scope_and_no_form_changes_it(world, role):
    answers = ask_pages(world, world.browser(role), role)
    faults = [(address, answer.status_code) for address, answer in answers if answer.status_code >= 500]
    assert find_leaks(answers) == []
    assert faults == []
    assert any(OWN in answer.text for _, answer in answers)
    _check_others_unchanged(world)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_no_operation_of_the_api_answers_what_is_outside_the_scope_and_none_changes_it(world, role):
    answers = ask_api(world, world.program(role), role)
    assert find_leaks(answers) == []
    assert [address for address, answer in answers if answer.status_code == 500] == []
    assert any(OWN in answer.text for _, answer in answers)
    _check_others_unchanged(world)


def test_an_account_without_a_scope_sees_all_of_it(world):
    answers = ask_pages(world, world.browser(Role.VIEWER, EVERYTHING), Role.VIEWER)
    answers += ask_api(world, world.program(Role.VIEWER, EVERYTHING), Role.VIEWER)
    marked = {address for address, answer in answers if MARK in answer.text}
    for path in (
        "/",
        "/letters",
        "/groups?show=all",
        "/plans",
        "/activity",
        "/api/v1/status",
        "/api/v1/letters",
        "/api/v1/trail",
    ):
        assert f"GET {path}" in marked, path
    assert len(marked) > 40


def _check_others_unchanged(world: World) -> None:
    """All rows that others had are as they were; and no plan has a letter of theirs that had none."""
    before, now = world.others.before, world.others.rows()
    own_letters, own_plans = set(world.own), {world.plans[0]}
    assert now["kinds"] == before["kinds"]
    own_group = _own_groups(world) - {world.shared}
    for name in ("groups", "cause_fixes"):
        assert [row for row in now[name] if row[0] not in own_group] == [
            row for row in before[name] if row[0] not in own_group
        ]
    for row in before["letters"]:
        assert row in now["letters"] or row[0] in own_letters
    for row in before["plans"]:
        assert row in now["plans"] or row[0] in own_plans
    new_items = [row for row in now["items"] if row not in before["items"]]
    assert {row[2] for row in new_items} <= own_letters
    assert {row[1] for row in now["edits"]} <= own_letters
    with world.desk.database.reading() as connection:
        about = connection.execute(select(tables.trail.c.letter_id, tables.trail.c.group_id, tables.trail.c.plan_id))
        written = [tuple(row) for row in about]
    assert sum(row[0] in world.foreign for row in written) == 1
    assert sum(row[1] == world.shared for row in written) == 1


def test_a_letter_outside_the_scope_answers_as_one_that_does_not_exist(world):
    browser, program = world.browser(Role.OPERATOR), world.program(Role.OPERATOR)
    for path in ("", "/value", "/edit", "/elsewhere"):
        there = [browser.get(f"/letters/{id_}{path}") for id_ in (world.foreign[0], 999)]
        assert {each.status_code for each in there} == {404}, path
        assert _strip_ids(there[0]) == _strip_ids(there[1])
    for path in ("letters", "groups", "plans"):
        id_ = {"letters": world.foreign[0], "plans": world.plans[1]}.get(path) or next(
            each for each in world.groups if each != world.shared and each not in _own_groups(world)
        )
        there = [program.get(f"/api/v1/{path}/{each}") for each in (id_, 999)]
        assert {each.status_code for each in there} == {404}
        assert _strip_ids(there[0]) == _strip_ids(there[1])


def _own_groups(world: World) -> set[int]:
    return {world.letters[id_].group for id_ in world.own}


def _strip_ids(answer: Any) -> str:
    return re.sub(r"\d+|[A-Za-z0-9_-]{22,}", "#", answer.text)


def test_counts_groups_and_statistics_are_of_the_scope_alone(world):
    program = world.program(Role.VIEWER)
    assert program.get("/api/v1/letters/count").json()["count"] == len(world.own)
    assert sum(program.get("/api/v1/stats").json()["statuses"].values()) == len(world.own)
    groups = {each["id"]: each for each in program.get("/api/v1/groups").json()["items"]}
    assert {*groups} == _own_groups(world)
    assert groups[world.shared]["count"] == 2
    assert groups[world.shared]["last_at"] == "1970-01-01T00:00:00Z"
    assert program.get("/api/v1/letters/export").text.count('"delivery"') == len(world.own)
    assert [each["id"] for each in program.get("/api/v1/plans").json()["items"]] == world.plans[:1]


def test_who_has_a_scope_makes_plans_of_covered_letters_and_applies_them(world):
    program, headers = world.program(Role.OPERATOR), {"idempotency-key": "one"}
    made = program.post("/api/v1/plans", json={"what": "archive", **OPEN}, headers=headers)
    assert made.status_code == 201, made.text
    assert made.json()["counts"]["letters"] == len(world.own)
    said = {"idempotency-key": "two", "if-match": made.json()["etag"]}
    applied = program.post(f"/api/v1/plans/{made.json()['id']}/apply", json={}, headers=said)
    assert applied.json()["state"] == "applying", applied.text


def test_a_group_that_has_letters_of_others_is_marked_as_fixed_by_who_sees_all_of_them(world):
    program, headers = world.program(Role.OPERATOR), {"idempotency-key": "one", "if-match": "*"}
    refused = program.post(f"/api/v1/groups/{world.shared}/fixed", json={"version": "2"}, headers=headers)
    assert refused.status_code == 403
    assert "also has letters outside" in refused.json()["detail"]
    (own,) = _own_groups(world) - {world.shared}
    headers["idempotency-key"] = "two"
    assert program.post(f"/api/v1/groups/{own}/fixed", json={"version": "2"}, headers=headers).status_code == 200


def test_a_plan_is_hidden_once_the_scope_of_its_maker_leaves_out_a_letter_of_it(world):
    browser = world.browser(Role.OPERATOR)
    made = browser.post("/plans/new", data={**SELECTION, "token": browser.token}).headers["location"].partition("?")[0]
    assert browser.get(made).status_code == 200
    world.desk.users.give_scope("operator-scoped", LetterScope(("salaries",)), "the test")
    assert browser.get(made).status_code == 303
    later = world.browser(Role.OPERATOR, LetterScope(("salaries",)))
    assert later.get(made).status_code == 404


def test_an_address_that_says_nothing_about_scopes_is_closed_to_them(world, monkeypatch):
    closed = {f"{each.method} {each.path}" for each in (*PAGE_ROUTES, *OPERATIONS) if each.scope is ScopeRule.CLOSED}
    assert {each for each in closed if "/admin/" not in each} == {"POST /plans/copy", "POST /plans/redrive"}
    browser = world.browser(Role.ADMIN)
    for path in ("/admin/users", "/admin/tokens", "/admin/webhooks"):
        answer = browser.get(path)
        assert answer.status_code == 403
        assert "an account without a scope can do it" in answer.text


def test_every_operation_that_takes_a_body_is_asked_with_one():
    assert {each.name for each in OPERATIONS if each.method == "POST"} == set(BODIES)
