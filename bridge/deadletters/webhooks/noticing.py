"""What begins and what ends is noticed, and written for the webhooks that tell of it; duties of the recorder.

Order of acts: what stands is looked at; then, in one transaction, what is new of it is noted and what is to be sent
written. So each is written once, whichever recorder looks, and a crash leaves nothing half told.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.questions.groups import Groups
from bridge.deadletters.store import alarms, clock, deliveries, webhooks
from bridge.deadletters.store.alarms import Row
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.webhooks import events, standing
from bridge.deadletters.webhooks.events import About, Alarm, start_of
from bridge.deadletters.webhooks.writing import write
from bridge.handlers import Routes
from bridge.settings import Settings

#: Seconds after which what was looked at is not so any more: the process was frozen, or a server slow.
GOOD_FOR: Final = 10.0
#: New groups of one look that are told one by one; the last says how many more there are.
NEW_AT_ONCE: Final = 5
#: New groups that one look takes on.
LOOKED_AT: Final = 500
#: Ms for which what was sent, or given up, is kept to be looked at.
KEPT_FOR: Final = 7 * 86_400_000


def notice_topics(
    settings: Settings, routes: Routes, database: Database, seconds: Callable[[], float] = time.monotonic
) -> None:
    """Notice halts and breakers, and their ends.

    Raises:
        LedgerUnavailable, KafkaUnavailable, NotDecided, DeskUnavailable: something did not answer; nothing was noticed.
    """
    group = settings.group
    scope = tuple(start_of(about, group) for about in (About.HALT, About.BREAKER))

    def look() -> tuple[list[Alarm], set[str]]:
        return standing.of_topics(settings, routes)

    _notice(database, (About.HALT, About.BREAKER), scope, look, seconds)


def notice_groups(database: Database, seconds: Callable[[], float] = time.monotonic) -> None:
    """Notice growth and regressions, and their ends; forget what was sent long ago.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    scope = tuple(start_of(about, "") for about in (About.GROWTH, About.REGRESSION))

    def look() -> tuple[list[Alarm], set[str]]:
        return standing.of_groups(database), set()

    _notice(database, (About.GROWTH, About.REGRESSION), scope, look, seconds)
    _forget(database)


def notice_new(database: Database) -> None:
    """Notice groups that there were not before.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    with database.reading() as connection:
        if not webhooks.is_any(connection):
            return
        seen, ids = alarms.look(connection), alarms.untold(connection, LOOKED_AT)
    if not ids:
        return
    # Of what was cleaned up, or imported, since there may be nothing to tell.
    found = sorted(Groups(database).all(Filter(groups=tuple(ids))), key=lambda group: -group.open)
    told, more = found[:NEW_AT_ONCE], max(0, len(found) - NEW_AT_ONCE)
    with database.writing() as connection:
        if alarms.changes(connection, seen):
            alarms.told(connection, ids, clock.now(connection))
            for group in told:
                alarm = events.new_group(group, more if group is told[-1] else 0)
                write(connection, events.begins(alarm))


def _notice(
    database: Database,
    about: tuple[About, ...],
    scope: tuple[str, ...],
    look: Callable[[], tuple[list[Alarm], set[str]]],
    seconds: Callable[[], float],
) -> None:
    """Compare what stands with what was noted."""
    with database.reading() as connection:
        if not webhooks.is_any(connection):
            return
        seen, known = alarms.look(connection), alarms.standing(connection, about)
    began = seconds()
    found, unsure = look()
    stands = {alarm.key: alarm for alarm in found}
    begun = [alarm for key, alarm in stands.items() if key not in known]
    ended = [key for key in known if key.startswith(scope) and key not in stands and key not in unsure]
    if not begun and not ended:
        return
    with database.writing() as connection:
        if seconds() - began < GOOD_FOR and alarms.changes(connection, seen):
            _write(connection, begun, {key: known[key] for key in ended})


def _write(connection: Connection, begun: Iterable[Alarm], ended: dict[str, Row]) -> None:
    at = clock.now(connection)
    for key, row in ended.items():
        alarms.end(connection, key)
        write(connection, events.ends(_alarm(key, row), at))
    for alarm in begun:
        alarms.begin(connection, alarm.key, Row(alarm.about, alarm.name, alarm.at, alarm.data))
        write(connection, events.begins(alarm))


def _alarm(key: str, row: Row) -> Alarm:
    about = About(row.about)
    whose = key.removeprefix(f"{about}:").removesuffix(f":{row.name}")
    data: dict[str, Any] = dict(row.data)
    return Alarm(about, row.name, row.at, data, whose)


def _forget(database: Database) -> None:
    with database.writing() as connection:
        deliveries.clean(connection, clock.now(connection) - KEPT_FOR)
