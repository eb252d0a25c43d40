"""A replay to all handlers of a topic: whose deliveries of the same message go out besides the letter's own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bridge.deadletters.letters.letter import Identity, Status
from bridge.deadletters.plan.lanes import course_of
from bridge.deadletters.store import contents, items, waves, weighing
from bridge.deadletters.store.contents import Standing
from bridge.deadletters.store.database import Connection
from bridge.deadletters.store.items import Item
from bridge.handlers import Routes
from bridge.settings import Settings

#: Letters that are looked at at once.
AT_ONCE: Final = 1_000


def add(connection: Connection, plan_id: int, letters: int, settings: Settings, routes: Routes, canary: bool) -> int:
    """Take the other handlers' deliveries into a plan, each beside its letter's; how many it has then.

    What is itself an open letter goes as that. What is done, or under way, is left out as the plan is applied, when the
    ledger is asked. In a `sequence` the later handlers follow by themselves.

    Parameters:
        letters: how many the plan has so far.
    """
    last, after = letters, 0
    taken: set[int] = set()
    while page := [item for item in items.page(connection, plan_id, after, AT_ONCE) if item.position <= letters]:
        after = page[-1].position
        found = contents.standings(connection, [item.letter_id for item in page if item.letter_id])
        taken |= found.keys()
        others = dict(_others(found, settings, routes))
        known = weighing.by_digest(connection, others)
        more: list[Item] = []
        for digest, (letter, handler) in others.items():
            if digest not in known:
                of = letter.delivery
                course = course_of(settings, of.group, of.topic, handler)
                lane = course and course.lane(of.partition, letter.key)
                more.append(Item(last + len(more) + 1, letter.id, _place(letter, handler), letter.failures, lane))
                continue
            its = known[digest]
            if its.status is Status.OPEN and its.id not in taken:
                taken.add(its.id)
                more.append(Item(last + len(more) + 1, its.id, None, its.failures))
        items.add(connection, plan_id, more, canary=False)
        last += len(more)
    waves.in_order(connection, plan_id)
    if canary:
        waves.cut(connection, plan_id)
    return last


def _others(
    found: Mapping[int, Standing], settings: Settings, routes: Routes
) -> Iterator[tuple[bytes, tuple[Standing, str]]]:
    """By the digest of each other handler's delivery, the letter and the handler."""
    for letter in found.values():
        origin = letter.delivery
        if not letter.is_ours or settings.topic(origin.topic).sequence:
            continue
        for handler in _names(routes, origin.topic):
            if handler != origin.handler:
                where = (origin.topic, origin.topic_id, origin.partition, origin.offset)
                yield Identity(origin.group, *where, handler).digest, (letter, handler)


def _names(routes: Routes, topic: str) -> Sequence[str]:
    return [handler.name for handler in routes.of(topic)]


def _place(letter: Standing, handler: str) -> str:
    return letter.delivery._replace(handler=handler).identity
