"""The handlers that this app or a living worker knows, and the deliveries of a topic's other handlers that a plan
adds.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Final

from celery import Celery

from bridge.deadletters.db import letter_payload, plan_counts, plan_item_rows, plan_order_rows
from bridge.deadletters.db.database import Connection
from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.model.plan_order import find_course
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterStatus
from bridge.errors import LedgerUnavailable
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.settings import Settings


def find_known_handlers(app: Celery, settings: Settings, routes: Routes) -> frozenset[str]:
    """Return the names of the handlers that this app or a living worker knows; without Redis those of the app."""
    names = set(routes.handlers)
    for name in routes.handlers:
        names |= set(getattr(app.tasks.get(name), "other_names", ()))
    if (ledger := Ledger.from_settings(settings)) is not None:
        with closing(ledger), suppress(LedgerUnavailable):
            for state in GroupMembers(ledger, "workers").living().values():
                names |= set(map(str, state.get("handlers", ())))
    return frozenset(names)


#: Letters of one batch.
AT_ONCE: Final = 1_000


def add_other_handlers(
    connection: Connection, plan_id: int, letters: int, settings: Settings, routes: Routes, canary: bool
) -> int:
    """Add the other handlers' deliveries to a plan, each next to its letter's; return the new number of items.

    A delivery with an open letter goes as that letter. Done ones and those in flight are left out when the plan is
    applied. In a `sequence` the later handlers follow by themselves.

    Parameters:
        letters: the number of the plan's letters so far.
    """
    last, after = letters, 0
    taken: set[int] = set()
    while page := [
        item for item in plan_item_rows.read_items(connection, plan_id, after, AT_ONCE) if item.position <= letters
    ]:
        after = page[-1].position
        found = letter_payload.read_letter_standings(connection, [item.letter_id for item in page if item.letter_id])
        taken |= found.keys()
        others = dict(_find_others(found, settings, routes))
        known = plan_counts.find_letters_by_digest(connection, others)
        more: list[PlanItem] = []
        for digest, (letter, handler) in others.items():
            if digest not in known:
                of = letter.delivery
                course = find_course(settings, of.group, of.topic, handler)
                lane = course and course.lane(of.partition, letter.key)
                place = of._replace(handler=handler).identity
                more.append(PlanItem(last + len(more) + 1, letter.id, place, letter.failures, lane))
                continue
            its = known[digest]
            if its.status is LetterStatus.OPEN and its.id not in taken:
                taken.add(its.id)
                more.append(PlanItem(last + len(more) + 1, its.id, None, its.failures))
        plan_item_rows.add_items(connection, plan_id, more, canary=False)
        last += len(more)
    plan_order_rows.renumber_items(connection, plan_id)
    if canary:
        plan_order_rows.cut_waves(connection, plan_id)
    return last


def _find_others(
    found: Mapping[int, LetterStanding], settings: Settings, routes: Routes
) -> Iterator[tuple[bytes, tuple[LetterStanding, str]]]:
    """Yield, by the digest of each other handler's delivery, the letter and the handler."""
    for letter in found.values():
        origin = letter.delivery
        if not letter.is_ours or settings.topic(origin.topic).sequence:
            continue
        for handler in [handler.name for handler in routes.of(origin.topic)]:
            if handler != origin.handler:
                yield LetterIdentity.for_delivery(origin._replace(handler=handler)).digest, (letter, handler)
