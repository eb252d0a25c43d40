"""The watch for alarms of groups, topics, circuit breakers and plans: what begins and ends is noted and queued for
webhooks in one transaction, once, whichever recorder looks.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from bridge.deadletters.alarms import alarm_event
from bridge.deadletters.alarms.alarm_event import Alarm, AlarmKind, start_alarm_key
from bridge.deadletters.alarms.webhook_service import write_event
from bridge.deadletters.db import plan_rows, sql, webhook_rows
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.webhook_rows import AlarmRow
from bridge.deadletters.inspection.failure_groups import FailureGroups, GroupState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.formats.failure import read_error_class
from bridge.formats.group_decision import GroupDecision, halted_topic
from bridge.formats.halt_scope import HaltScope, find_small_halts
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import BreakerStatus, CircuitBreakers
from bridge.ledger.decision_store import DecisionMirror, look_up_decisions, read_standing_decisions
from bridge.settings import Settings

#: What precedes the last error in the reason of an open breaker (breaker_rules.lua).
LAST_ERROR: Final = "; the last error: "


def find_topic_alarms(settings: Settings, routes: Routes) -> tuple[list[Alarm], set[str]]:
    """Return the alarms of halted topics and open circuit breakers.

    Returns:
        The alarms, and the keys of those that may neither begin nor end now: of half-open breakers.

    Raises:
        LedgerUnavailable, KafkaUnavailable, NotDecided: a server did not answer.
    """
    ledger = Ledger.from_settings(settings)
    if ledger is None:
        return _find_halts(settings, None), set()
    with closing(ledger):
        breakers, unsure = _find_open_breakers(settings, routes, ledger)
        return [*_find_halts(settings, DecisionMirror(ledger)), *breakers], unsure


def find_group_alarms(database: Database) -> list[Alarm]:
    """Return the alarms of groups with open letters that grow, or failed again though they were fixed.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    return [alarm for group in FailureGroups(database).urgent() for alarm in _list_group_alarms(group)]


def _list_group_alarms(group: GroupState) -> list[Alarm]:
    grows = [] if group.growth is None else [alarm_event.describe_growth(group, group.growth)]
    causes = [alarm_event.regression_of_cause(group, fix) for fix in group.cause_fixes if fix.regressed_at is not None]
    return [*grows, *([] if group.regressed_at is None else [alarm_event.describe_regression(group)]), *causes]


def _find_halts(settings: Settings, mirror: DecisionMirror | None) -> list[Alarm]:
    decided = read_standing_decisions(settings, None) if mirror is None else look_up_decisions(settings, mirror)
    halts = {topic: each for key, each in decided.items() if each.data is not None and (topic := halted_topic(key))}
    small: dict[tuple[str, str], list[tuple[HaltScope, GroupDecision]]] = {}
    for scope, each in find_small_halts(decided).items():
        small.setdefault((scope.topic, scope.handler), []).append((scope, each))
    return [
        *(
            alarm_event.describe_halt(settings.group, topic, _hide_handler_words(each))
            for topic, each in sorted(halts.items())
        ),
        *(alarm_event.describe_handler_halt(settings.group, halted) for halted in small.values()),
    ]


def _hide_handler_words(halt: GroupDecision) -> GroupDecision:
    """Return a halt with the class of its error instead of a handler's words; a person's reason stays."""
    data = halt.data or {}
    if "handler" not in data:
        return halt
    why = f"the handler raised {read_error_class(str(data.get('error', ''))) or 'an error'}"
    return replace(halt, change=halt.change._replace(why=why))


def _hide_error_message(known: BreakerStatus) -> BreakerStatus:
    """Return a breaker's state with the class of its last error and without its message."""
    rule, mark, error = known.why.partition(LAST_ERROR)
    shown = read_error_class(error)
    return known._replace(why=f"{rule}{mark}{shown}" if shown else rule)


def _find_open_breakers(settings: Settings, routes: Routes, ledger: Ledger) -> tuple[list[Alarm], set[str]]:
    found, unsure = [], set()
    for name, known in sorted(CircuitBreakers(ledger).open_ones(sorted(routes.terms)).items()):
        handlers = [each.name for each in routes if name in each.needs]
        alarm = alarm_event.describe_open_breaker(settings.group, name, _hide_error_message(known), handlers)
        if known.state == "ramping":
            unsure.add(alarm.key)
        else:
            found.append(alarm)
    return found, unsure


#: Seconds after which an observation is too old: the process was frozen, or a server slow.
GOOD_FOR: Final = 10.0
#: New groups of one poll with an event each; the last event counts the others.
NEW_AT_ONCE: Final = 5
#: New groups of one poll.
LOOKED_AT: Final = 500
#: Ms for which ended deliveries are kept for people to see.
KEPT_FOR: Final = 7 * 86_400_000


def notice_topics(
    settings: Settings, routes: Routes, database: Database, seconds: Callable[[], float] = time.monotonic
) -> None:
    """Note begins and ends of halts and open breakers, and queue their events.

    Raises:
        LedgerUnavailable, KafkaUnavailable, NotDecided, DeskUnavailable: a server did not answer; nothing was noted.
    """
    group = settings.group
    scope = tuple(start_alarm_key(about, group) for about in (AlarmKind.HALT, AlarmKind.BREAKER))

    def find_alarms() -> tuple[list[Alarm], set[str]]:
        return find_topic_alarms(settings, routes)

    _notice_alarms(database, (AlarmKind.HALT, AlarmKind.BREAKER), scope, find_alarms, seconds)


def notice_groups(database: Database, seconds: Callable[[], float] = time.monotonic) -> None:
    """Note begins and ends of growth and regressions, and queue their events; delete old deliveries.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    scope = tuple(start_alarm_key(about, "") for about in (AlarmKind.GROWTH, AlarmKind.REGRESSION))

    def find_alarms() -> tuple[list[Alarm], set[str]]:
        return find_group_alarms(database), set()

    _notice_alarms(database, (AlarmKind.GROWTH, AlarmKind.REGRESSION), scope, find_alarms, seconds)
    _delete_old_deliveries(database)


def notice_awaiting_plans(database: Database, seconds: Callable[[], float] = time.monotonic) -> None:
    """Note which plans begin and end to await a second person, and queue their events.

    Raises:
        DeskUnavailable: the database did not answer.
    """

    def find_alarms() -> tuple[list[Alarm], set[str]]:
        with database.reading() as connection:
            awaiting = plan_rows.read_awaiting_plans(connection)
        return [alarm_event.describe_awaiting_plan(plan, since) for plan, since in awaiting], set()

    scope = (start_alarm_key(AlarmKind.APPROVAL, ""),)
    _notice_alarms(database, (AlarmKind.APPROVAL,), scope, find_alarms, seconds)


def notice_new(database: Database) -> None:
    """Note groups that are new, and queue their events.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    with database.reading() as connection:
        if not webhook_rows.has_webhooks(connection):
            return
        seen, ids = webhook_rows.read_look_number(connection), webhook_rows.find_untold_groups(connection, LOOKED_AT)
    if not ids:
        return
    # A group may have been cleaned up, or imported, since: then it has no event.
    found = sorted(FailureGroups(database).all(LetterFilter(groups=tuple(ids))), key=lambda group: -group.open)
    told, more = found[:NEW_AT_ONCE], max(0, len(found) - NEW_AT_ONCE)
    with database.writing() as connection:
        if webhook_rows.begin_alarm_changes(connection, seen):
            webhook_rows.note_told_groups(connection, ids, sql.read_clock(connection))
            for group in told:
                alarm = alarm_event.describe_new_group(group, more if group is told[-1] else 0)
                write_event(connection, alarm_event.begin_event(alarm))


def _notice_alarms(
    database: Database,
    about: tuple[AlarmKind, ...],
    scope: tuple[str, ...],
    look: Callable[[], tuple[list[Alarm], set[str]]],
    seconds: Callable[[], float],
) -> None:
    """Compare the alarms of now with those that were noted, and write the events of the difference."""
    with database.reading() as connection:
        if not webhook_rows.has_webhooks(connection):
            return
        seen, known = webhook_rows.read_look_number(connection), webhook_rows.read_standing_alarms(connection, about)
    began = seconds()
    found, unsure = look()
    stands = {alarm.key: alarm for alarm in found}
    begun = [alarm for key, alarm in stands.items() if key not in known]
    ended = [key for key in known if key.startswith(scope) and key not in stands and key not in unsure]
    if not begun and not ended:
        return
    with database.writing() as connection:
        if seconds() - began < GOOD_FOR and webhook_rows.begin_alarm_changes(connection, seen):
            _write_events(connection, begun, {key: known[key] for key in ended})


def _write_events(connection: Connection, begun: Iterable[Alarm], ended: dict[str, AlarmRow]) -> None:
    at = sql.read_clock(connection)
    for key, row in ended.items():
        webhook_rows.end_alarm(connection, key)
        write_event(connection, alarm_event.end_event(_read_alarm(key, row), at))
    for alarm in begun:
        webhook_rows.begin_alarm(connection, alarm.key, AlarmRow(alarm.about, alarm.name, alarm.at, alarm.data))
        write_event(connection, alarm_event.begin_event(alarm))


def _read_alarm(key: str, row: AlarmRow) -> Alarm:
    about = AlarmKind(row.about)
    whose = key.removeprefix(f"{about}:").removesuffix(f":{row.name}")
    data: dict[str, Any] = dict(row.data)
    return Alarm(about, row.name, row.at, data, whose)


def _delete_old_deliveries(database: Database) -> None:
    with database.writing() as connection:
        webhook_rows.delete_ended_deliveries(connection, sql.read_clock(connection) - KEPT_FOR)
