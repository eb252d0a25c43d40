"""The desk of a shop in the night of an incident: what died, when, of what, and what its people did."""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import select, update

from bridge.deadletters.db import letter_rows, plan_item_rows, plan_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus, StoredLetter
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from bridge.formats.attempt_history import AttemptNote
from bridge.formats.delivery import Attempts
from bridge.ledger.delivery_counts import CountKey, DurationKey, add_counts
from bridge.ledger.duration_histogram import count_by_bucket
from bridge.ledger.gauge_history import GaugeKey, write_gauges
from bridge.ledger.ledger_client import Ledger
from tests.browser.world import World
from tests.desk import letters
from tests.web import hostile_input

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE

CHARGE, NOTIFY, PAY_BACK = "orders.handlers.charge", "orders.handlers.notify", "refunds.handlers.pay_back"

_CALLED: Final = """\
Traceback (most recent call last):
  File "/app/.venv/lib/python3.13/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/app/.venv/lib/python3.13/site-packages/tasks/execution/batch_run.py", line 143, in run
    outcome = call(message)
"""
TOTAL: Final = f"""\
{_CALLED}  File "/app/orders/handlers.py", line 57, in charge
    amount = to_minor(order.total)
  File "/app/orders/money.py", line 31, in to_minor
    return int(Decimal(total) * 100)
decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]
"""
MAIL: Final = f"""\
{_CALLED}  File "/app/orders/handlers.py", line 88, in notify
    mail.send(customer, "paid", order)
  File "/app/orders/mail.py", line 19, in send
    with smtplib.SMTP(HOST, timeout=5) as smtp:
  File "/usr/lib/python3.13/smtplib.py", line 255, in __init__
    (code, msg) = self.connect(host, port)
  File "/usr/lib/python3.13/socket.py", line 839, in create_connection
    raise exceptions[0]
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/orders/mail.py", line 24, in send
    raise MailDown("mail-2 takes no connections") from fault
orders.mail.MailDown: mail-2 takes no connections
"""


def order(number: int, total: str = "12,50", currency: str = "EUR") -> bytes:
    """An order as the till writes it."""
    said = {
        "order": f"A-{90_000 + number % 10_000}",
        "customer": {"id": 4_000 + number % 61, "name": "Zoë Ågren"},
        "total": total,
        "currency": currency,
        "trace": 9007199254740993,
        "lines": [{"sku": "KB-104", "count": 1, "price": 12.5}],
        "placed_at": "2026-11-21T01:58:07.114Z",
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def died(world: World, offset: int, ago: int, **other: Any) -> StoredLetter:
    """A letter of the shop, whose handler failed so many ms ago."""
    topic = world.stack.topic(other.pop("source", "orders"))
    failed_at = int(time.time() * 1000) - ago
    partition = offset % 3
    made = letters.letter(
        offset,
        **{
            "key": f"cust-{90_400 + offset % 61}".encode(),
            "value": order(offset),
            "headers": (
                ("content-type", b"application/json"),
                ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f0"),
            ),
            "failed_at": failed_at,
            "first_failed_at": failed_at - 90_000,
            "timestamp": failed_at - 92_000,
            "consumer_group": world.stack.environ["BRIDGE_GROUP"],
            "runs": 1,
            "attempts": Attempts(1),
            "reason": "permanent",
        }
        | other,
    )
    group = made.kind.consumer_group
    identity = made.identity._replace(consumer_group=group, topic=topic, partition=partition)
    kind = made.kind._replace(topic=topic)
    history = tuple(
        AttemptNote(run, failed_at - 7_000 * (made.runs - run), 28 + run, made.error_message, "celery@worker-2", "1.5")
        for run in range(1, made.runs + 1)
    )
    made = replace(made, history=history, first_failed_at=history[0].ended_at)
    return replace(made, identity=identity, kind=kind, topic=f"{topic}.dlq", partition=partition)


def totals(world: World) -> Iterator[StoredLetter]:
    """What the new version broke: more from hour to hour."""
    said = {
        "error_class": "decimal.InvalidOperation",
        "place": "orders/money.py:to_minor",
        "error_message": "[<class 'decimal.ConversionSyntax'>]",
        "traceback": TOTAL,
        "version": "1.5.0",
    }
    for number in range(180):
        # More of them the nearer to now.
        yield died(world, 1_180_400 + number, (180 - number) ** 2 * 280 + 40_000, **said)


def mail(world: World) -> Iterator[StoredLetter]:
    """What waited for a server of others until its retries were over."""
    said = {
        "handler": NOTIFY,
        "error_class": "orders.mail.MailDown",
        "place": "orders/mail.py:send",
        "error_message": "mail-2 takes no connections",
        "traceback": MAIL,
        "reason": "exhausted",
        "runs": 13,
    }
    for number in range(37):
        version = "1.4.2" if number < 20 else "1.5.0"
        attempts = Attempts(12, 1) if number % 9 == 0 else Attempts(13)
        yield died(
            world, 1_170_000 + number, 20 * HOUR - number * 31 * MINUTE, version=version, attempts=attempts, **said
        )


def unreadable(world: World) -> Iterator[StoredLetter]:
    """What no handler could decode: bytes that are no text, JSON that is cut off, and a null."""
    said = {
        "handler": PAY_BACK,
        "source": "refunds",
        "error_class": "json.decoder.JSONDecodeError",
        "place": "",
        "error_message": "Expecting ',' delimiter: line 1 column 41 (char 40)",
        "traceback": "",
        "reason": "undecodable",
        "version": "1.4.2",
    }
    values = (b'{"refund": "R-11", "order": "A-90012", "tot', bytes(range(256)) * 3, None, b"", b"[1, 2", b"\xff\xfe{}")
    for number, value in enumerate(values):
        yield died(world, 700 + number, 9 * HOUR - number * HOUR, value=value, **said)


def attack(world: World) -> StoredLetter:
    """One of which everything that others write is hostile."""
    return died(
        world,
        1_190_000,
        3 * MINUTE,
        handler=f"orders.{hostile_input.TEXT}",
        error_class=f"evil.{hostile_input.TEXT}",
        place=f"{hostile_input.TEXT}.py:{hostile_input.TEXT}",
        error_message=hostile_input.TEXT,
        traceback=f'Traceback (most recent call last):\n  File "/app/{hostile_input.TEXT}.py", line 1, in x\n'
        f"{hostile_input.TEXT}",
        version=hostile_input.TEXT,
        key=hostile_input.BYTES,
        value=b'{"note": "' + hostile_input.TEXT.replace("\\", "").replace('"', "'").encode() + b'"}',
        headers=((hostile_input.TEXT, hostile_input.BYTES), ("javascript:alert(3)", b"javascript:alert(4)")),
    )


@dataclass(frozen=True)
class Night:
    """Where things lie in the desk.

    Attributes:
        total, hostile, bytes_, again, resolved: ids of letters.
        group: of the totals.
        previewed, discarding, stopped, applying, done: ids of plans, by how far they are.
        patched, copied, again_sent: of others, by what they do; none is applied.
    """

    total: int
    hostile: int
    bytes_: int
    again: int
    resolved: int
    group: int
    previewed: int
    discarding: int
    stopped: int
    applying: int
    done: int
    patched: int
    copied: int
    again_sent: int


def handled(world: World, letters: Iterable[StoredLetter]) -> None:
    """What workers counted in the last day: a shop that is busy by day, and what of it failed and died."""
    ledger = Ledger.from_settings(world.desk.settings)
    assert ledger is not None
    minute, found = int(time.time() // 60), Counter[CountKey]()
    took: dict[DurationKey, dict[int, int]] = {}
    levels: dict[int, dict[GaugeKey, int]] = {}
    for handler, source, usual, mean in (
        (CHARGE, "orders", 40, 0.08),
        (NOTIFY, "orders", 36, 0.4),
        (PAY_BACK, "refunds", 3, 6),
    ):
        topic = world.stack.topic(source)
        for at in range(minute - 24 * 60 + 1, minute):
            # By no chance: two pictures of one night are the same but for their clock.
            busy = 1.2 + math.sin(at / 229) + 0.2 * math.sin(at * 7.3)
            runs = found[CountKey(topic, handler, "handled", at)] = max(1, int(usual * busy))
            slow = mean * (1 + 3 * (at > minute - 20)) * (1 + 0.2 * math.sin(at / 3))
            took[DurationKey(topic, handler, at)] = {
                **count_by_bucket([slow * (0.4 + (run * 7 % 20) / 14) for run in range(runs)]),
            }
            waiting = int(runs * (1 + 12 * (at > minute - 15)))
            levels.setdefault(at, {})[GaugeKey("backlog", handler)] = waiting
            levels[at][GaugeKey("lag", topic)] = 2 * waiting
    for each in letters:
        at = each.failed_at // MINUTE
        whose = (each.identity.topic, each.identity.handler)
        found[CountKey(*whose, "failed", at)] += each.runs
        found[CountKey(*whose, "dead", at)] += 1
    orders = world.stack.topic("orders")
    for handler, ago, went in ((NOTIFY, 26, 37), (CHARGE, 3, 6), (CHARGE, 2, 20), (CHARGE, 1, 81)):
        found[CountKey(orders, handler, "replayed", minute - ago)] += went
    with closing(ledger):
        add_counts(ledger, found, took)
        # A minute in which no bridge ran has no level.
        for at, values in levels.items():
            if at > minute - 90 or at % 60 == 0:
                write_gauges(ledger, values if at != minute - 30 else {}, at)


def fill(world: World) -> Night:
    """Have all of it happen."""
    died_of_totals = list(totals(world))
    night = [*died_of_totals, *mail(world), *unreadable(world)]
    world.record([*night, attack(world)])
    handled(world, night)
    desk = world.desk
    ids = {each.offset: each.id for each in desk.letters.page(LetterFilter(), limit=1_000).letters}
    first, last = ids[died_of_totals[-7].identity.offset], died_of_totals[-1]
    again = replace(
        last,
        kind=last.kind._replace(version="1.5.1"),
        failed_at=last.failed_at + 25_000,
        runs=2,
        number=1,
        attempts=Attempts(2, 0, 0, 1),
        offset=2_000_000,
    )
    world.record([again])
    group = desk.letters.one(first).listed.group
    desk.notes.on_letters([first], "The till in Malmö writes a comma since its update; the vendor knows.", "ann")
    desk.notes.on_group(group, "1.5.1 takes both, and is rolled out by 03:10.", "ann")
    earlier = LetterFilter(handlers=(NOTIFY,))
    return Night(
        total=first,
        hostile=ids[1_190_000],
        bytes_=ids[701],
        again=ids[last.identity.offset],
        resolved=ids[1_170_000],
        group=group,
        done=_done(world, earlier),
        stopped=_stopped(world, LetterFilter(handlers=(PAY_BACK,))),
        applying=_applying(world, LetterFilter(handlers=(CHARGE,))),
        previewed=planned(world, PlanKind.REPLAY, LetterFilter(handlers=(CHARGE, PAY_BACK))),
        discarding=planned(world, PlanKind.DISCARD, LetterFilter(handlers=(PAY_BACK,))),
        patched=_patched(world, LetterFilter(handlers=(CHARGE,))),
        copied=_copied(world),
        again_sent=_again_sent(world),
    )


def _patched(world: World, asked: LetterFilter) -> int:
    """A plan that mends the totals; this desk has no code that could say what handlers take."""
    patch = (
        '[{"op": "test", "path": "/currency", "value": "EUR"}, {"op": "replace", "path": "/total", "value": "12.50"}]'
    )
    said = "A comma is a point, until 1.5.1 is out"
    return world.desk.mending.patch(asked, ValuePatch.read(patch), PlanOptions(), "ann", said, force=True).id


def _copied(world: World) -> int:
    """A plan of copies for the makers of the till, as `bridge deadletters replay --to-topic` makes it."""
    asked, target = LetterFilter(handlers=(CHARGE,)), {"topic": "sandbox.orders", "addresses": "kafka.sandbox:9092"}
    with world.desk.database.writing() as connection:
        id_, _ = plan_rows.add_plan(
            connection, PlanKind.COPY, "ada", "for the till", asked.to_data(), PlanOptions(target=target)
        )
        count = plan_item_rows.freeze_letters(connection, id_, select_matching_letters(asked), canary=False)
        plan_rows.note_plan_counts(connection, id_, PlanCounts(letters=count, handlers={CHARGE: {"permanent": count}}))
    return id_


def _again_sent(world: World) -> int:
    """A range that is sent again, as `bridge redrive` makes it."""
    asked = RedriveRequest(
        world.stack.topic("orders"), "2026-11-20T08:00:00+00:00", "2026-11-20T09:30:00+00:00", (), (CHARGE,)
    )
    stood = {CHARGE: {"done": 4_120, "dead": 31, "unaccounted": 1, "parked": 2, "open": 0}}
    with world.desk.database.writing() as connection:
        id_, _ = plan_rows.add_plan(
            connection, PlanKind.REDRIVE, "ann", "the bank lost them", asked.to_data(), PlanOptions()
        )
        plan_item_rows.add_items(
            connection, id_, [PlanItem(each, None, f"orders-0-{each}", 0) for each in range(1, 33)], canary=False
        )
        plan_rows.note_plan_counts(connection, id_, PlanCounts(letters=32, stands=stood))
    return id_


def planned(world: World, what: PlanKind, asked: LetterFilter, why: str = "1.5.1 takes a comma", **options: Any) -> int:
    return world.desk.plans.make(what, asked, PlanOptions(**options), "ann", why).id


def _done(world: World, asked: LetterFilter) -> int:
    """All of it came home."""
    plan = planned(world, PlanKind.REPLAY, asked, "mail-2 is back")
    count = world.desk.plans.approve(plan, "ann").counts.letters
    went_out(world, plan, range(1, count + 1), done=range(1, count + 1))
    note(world, plan, state=PlanState.DONE, ended_at=now() - MINUTE)
    return plan


def _stopped(world: World, asked: LetterFilter) -> int:
    """A canary whose first letters died again."""
    plan = planned(world, PlanKind.REPLAY, asked, "the parser is more patient now", canary=True)
    world.desk.plans.approve(plan, "ada")
    went_out(world, plan, range(1, 3), dead=range(1, 3))
    why = "1 of the 1 letters of wave 1 died again: 0.0 % are done, and a canary goes on from 95 %."
    note(world, plan, state=PlanState.STOPPED, stopped=why, ended_at=now() - MINUTE)
    return plan


def _applying(world: World, asked: LetterFilter) -> int:
    """A canary in its fourth wave."""
    plan = planned(world, PlanKind.REPLAY, asked, canary=True)
    world.desk.plans.approve(plan, "ann")
    for wave, last in ((range(1, 2), 30), (range(2, 7), 24), (range(7, 27), 17)):
        went_out(world, plan, wave, done=wave, ago=last * 1_000)
    went_out(world, plan, range(27, 108), done=range(27, 86), dead=range(86, 89), ago=9_000)
    with world.desk.database.writing() as connection:
        plan_rows.note_canary_wave(connection, plan, 3)
    note(world, plan, leased_by="recorder", leased_until=now() + 10 * HOUR)
    return plan


def went_out(world: World, plan: int, sent: Iterable[int], *, done: Any = (), dead: Any = (), ago: int = 2_000) -> None:
    """Positions of a plan went out so many ms ago, and ended so after 1.4 s."""
    at = now() - ago
    with world.desk.database.writing() as connection:
        plan_item_rows.claim_items(
            connection, plan, {each: LogPosition("shop.orders.replay", 0, each) for each in sent}, at
        )
        if done:
            plan_item_rows.end_items(connection, plan, dict.fromkeys(done, ""), PlanItemState.DONE, at + 1_400)
        if dead:
            plan_item_rows.end_items(connection, plan, dict.fromkeys(dead, ""), PlanItemState.DEAD, at + 1_428)
        table = tables.items
        rows = connection.execute(select(table.c.position, table.c.letter_id).where(table.c.plan_id == plan)).all()
        by_position = {row.position: row.letter_id for row in rows}
        for positions, status in ((done, LetterStatus.RESOLVED), (set(sent) - {*done, *dead}, LetterStatus.REPLAYING)):
            letter_rows.change_letter_status(
                connection, [by_position[each] for each in positions], LetterStatus.OPEN, status, at + 1_500, plan
            )


def note(world: World, plan: int, **values: Any) -> None:
    with world.desk.database.writing() as connection:
        connection.execute(update(tables.plans).where(tables.plans.c.id == plan).values(values))


def now() -> int:
    return int(time.time() * 1000)
