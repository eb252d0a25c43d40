"""A desk with a million dead letters, as people have used it: plans, deaths after a replay, notes; and its console."""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from celery import Celery
from sqlalchemy import Connection, case, insert, literal, select, text, update

from benchmarks.console_handlers import TOPICS
from benchmarks.stack import PARTITIONS, Stack
from bridge.console.auth.browser_session import LOCAL_SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import audit_rows, plan_item_rows, plan_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.table_definitions import failures, letters, tracebacks
from bridge.deadletters.db.table_definitions import items as each_item
from bridge.deadletters.db.table_definitions import plans as each_plan
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.handler_routes import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.servers.process import free_port
from tests.web.site import session

#: Letters of which one died more than once; and one of those of which one has a traceback of its own.
AGAIN: Final = 50
TRACED: Final = 1_000
#: Groups whose letters are sent back by the plan under way (some 100,000), and that wait in one that nobody decided on.
UNDER_WAY: Final = (1, 2, 3, 4)
WAITING: Final = (5, 6, 7, 8)
#: Plans that are over, each of a group.
OVER: Final = range(9, 57)
#: Who looks: as many as a team has.
PEOPLE: Final = ("ann", "bob", "cho", "dee", "eve", "fay")
TRACEBACK: Final = """\
Traceback (most recent call last):
  File "/app/.venv/lib/python3.13/site-packages/tasks/execution/batch_run.py", line 143, in run
    outcome = call(message)
  File "/app/shop/orders/handlers.py", line 57, in on_0
    amount = to_minor(order.total)
  File "/app/shop/money.py", line 31, in to_minor
    return int(Decimal(total) * 100)
decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]
"""


class Lies(NamedTuple):
    """Ids of plans: of one under way, of one that nobody decided on, of one that is over."""

    applying: int
    planned: int
    done: int


def use(database: Database) -> Lies:
    """Have people use a desk that was filled (`benchmarks.deadletters_million.fill`)."""
    now = int(time.time() * 1000)
    with database.writing() as connection:
        _die_again(connection)
        for number in range(3_000):
            said = {"letter_id": number * 7 + 1, "group_id": number % 400 + 1} if number % 3 else {"group_id": 1}
            audit_rows.write_entry(
                connection, now - 60_000 * number, PEOPLE[number % 6], "note", "The vendor knows.", **said
            )
    done = [_plan(database, (group,), PlanState.DONE, done=1.0, dead=20, now=now) for group in OVER]
    planned = _plan(database, WAITING, PlanState.PLANNED, done=0.0, dead=0, now=now)
    applying = _plan(database, UNDER_WAY, PlanState.APPLYING, done=0.6, dead=300, now=now)
    return Lies(applying, planned, done[0])


def _die_again(connection: Connection) -> None:
    made = insert(tracebacks).values(digest=b"0" * 16, text=TRACEBACK).returning(tracebacks.c.id)
    traceback = connection.execute(made).scalar_one()
    mine = letters.c.id % AGAIN == 0
    connection.execute(update(letters).where(mine).values(failures=2))
    connection.execute(update(letters).where(letters.c.id % TRACED == 0).values(traceback_id=traceback))
    same = ("kind_id", "error_message", "runs", "letter_topic", "letter_partition", "letter_offset", "traceback_id")
    before = select(letters.c.id, literal(1), letters.c.failed_at - 3_600_000, *(letters.c[name] for name in same))
    connection.execute(insert(failures).from_select(["letter_id", "number", "failed_at", *same], before.where(mine)))


def _plan(database: Database, groups: tuple[int, ...], state: PlanState, *, done: float, dead: int, now: int) -> int:
    """A canary of the open letters of groups, of which that part is done, and as many died again.

    Its letters stay open, whatever became of them: it is of no matter to what is measured.
    """
    asked = LetterFilter(groups=groups, statuses=(LetterStatus.OPEN,))
    with database.writing() as connection:
        id_, at = plan_rows.add_plan(
            connection, PlanKind.REPLAY, "ann", "the bank is back", asked.to_data(), PlanOptions(canary=True)
        )
        count = plan_item_rows.freeze_letters(connection, id_, select_matching_letters(asked), canary=True)
        plan_rows.note_plan_counts(connection, id_, PlanCounts(letters=count))
        audit_rows.write_entry(connection, at, "ann", "replay", f"plan {id_}: to replay {count:,} letters", plan_id=id_)
        ended = int(done * count)
        position = each_item.c.position
        became = case((position % max(1, ended // max(1, dead)) == 9, PlanItemState.DEAD), else_=PlanItemState.DONE)
        its = each_item.c.plan_id == id_
        sent = {"sent_topic": "orders.replay", "sent_partition": 0, "sent_offset": position, "sent_at": now - 90_000}
        over = {"state": became, "ended_at": now - 80_000}
        connection.execute(update(each_item).where(its, position <= ended).values(**sent, **over))
        if state is PlanState.APPLYING:
            under_way = (its, position > ended, position <= ended + 500)
            connection.execute(update(each_item).where(*under_way).values(**sent, state=PlanItemState.SENT))
        leased = {"leased_by": "recorder", "leased_until": now + 250_000} if state is PlanState.APPLYING else {}
        changed = {"state": state, "wave": 4 if ended else 0, **leased}
        times = {"began_at": now - 90_000} if ended else {}
        connection.execute(update(each_plan).where(each_plan.c.id == id_).values(**changed, **times))
    return id_


def settle(database: Database) -> None:
    """What PostgreSQL does by itself within a minute of so much being written."""
    if database.dialect == "postgresql":
        with database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))


class Served(NamedTuple):
    """A console that answers.

    Attributes:
        cookies: of an admin each.
    """

    pid: int
    address: str
    cookies: tuple[tuple[str, str], ...]


@contextmanager
def console(on: Stack, url: str) -> Iterator[Served]:
    """The console of a desk, its topics, a bridge and a worker, for the length of the block."""
    on.kafka.create_topics(*sorted(set(TOPICS.values())), partitions=PARTITIONS)
    around = {"HANDLERS": "benchmarks.console_handlers", "DEADLETTERS_DATABASE_URL": url, "BRIDGE_GROUP": "bridge"}
    port = free_port()
    serve = ("bridge", "deadletters", "serve", "--port", str(port))
    with (
        on.process("bridge", **around),
        on.process("celery", "-A", "tasks", "worker", "-c", "2", **around),
        on.process(*serve, **around) as process,
    ):
        address = f"http://localhost:{port}"
        _answers(address)
        yield Served(process.pid, address, tuple((LOCAL_SESSION_COOKIE, cookie) for cookie in _signed_in(on, url)))


def _signed_in(on: Stack, url: str) -> list[str]:
    said = EnvironmentSettings(DEADLETTERS_DATABASE_URL=url)
    settings = Settings(FileSettings(), said, on.redis_server.url, {"bootstrap.servers": on.kafka.bootstrap_servers})
    routes = Routes({name: Handler(name, (topic,), "q", 1, 0.0) for name, topic in TOPICS.items()})
    with (
        Celery("desk", broker=on.redis_server.url, set_as_current=False) as app,
        DeadLetterService.opened(app, settings, routes) as desk,
    ):
        return [session(Console(desk, ""), name, Role.ADMIN) for name in PEOPLE]


def _answers(address: str) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        with suppress(OSError), urllib.request.urlopen(f"{address}/healthz", timeout=5):
            return
        time.sleep(0.1)
    raise TimeoutError("the console does not answer")
