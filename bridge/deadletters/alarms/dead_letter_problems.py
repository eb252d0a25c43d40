"""The problems of the dead-letter store that need a person: letters missed, a recorder behind or gone, growing groups,
plans that await a second person, webhooks that fail, a database that does not answer.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from bridge.deadletters.alarms.webhook_cipher import CHANGED, UNREADABLE, WebhookCipher, is_encrypted
from bridge.deadletters.db import letter_rows, plan_rows, schema_migration, webhook_rows
from bridge.deadletters.db import webhook_rows as addresses
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.position_rows import PositionState
from bridge.deadletters.inspection.failure_groups import FailureGroups, GroupState
from bridge.deadletters.inspection.recorder_presence import (
    find_recorder_problems,
    read_recorded_positions,
    read_recorder_presence,
)
from bridge.deadletters.model.bulk_plan import BulkPlan
from bridge.errors import DeskUnavailable, WebhookRefused
from bridge.formats.text_forms import format_count, inflect_verb, make_printable
from bridge.handler_routes import Routes
from bridge.jobs.group_facts import format_letter_count, format_record_count, format_since, format_utc
from bridge.problems.dead_letter_problem_rows import (
    DEAD_LETTER_STORE_UNAVAILABLE,
    DEAD_LETTERS_MISSED,
    FAILURE_GROUP_GROWS,
    PLAN_AWAITS_APPROVAL,
    REPLAY_OUTCOME_UNKNOWN,
    WEBHOOK_FAILING,
)
from bridge.problems.problem import Problem, make_problem
from bridge.settings import Settings

#: Growing groups with a sentence each; one more sentence counts the others.
SAID: Final = 5
#: Seconds for which missed letters are reported.
TOLD_FOR: Final = 86_400.0
#: Tries after which a webhook's receiver counts as unavailable, about four minutes; and seconds in which an event
#: is tried if a recorder runs.
TRIED: Final = 5
UNSENT_FOR: Final = 60.0


def find_dead_letter_problems(
    settings: Settings,
    routes: Routes,
    now: Callable[[], float] = time.time,
    database: Database | None = None,
    *,
    kafka_answers: bool = True,
) -> list[Problem]:
    """Return the problems of the dead-letter store that need a person; none if no recorder ever ran here.

    Raises nothing: a database that does not answer is a problem. None is created or migrated.

    Parameters:
        database: the open database, if the caller has one; it stays open.
        kafka_answers: whether Kafka answered just now; one that did not is not asked again.
    """
    try:
        if database is not None:
            return _find_problems(settings, routes, now, database, kafka_answers)
        opened = Database(settings.environment.DEADLETTERS_DATABASE_URL)
        try:
            return _find_problems(settings, routes, now, opened, kafka_answers)
        finally:
            opened.close()
    except DeskUnavailable as error:
        return [_describe_database_fault(str(error))]


def _find_problems(
    settings: Settings, routes: Routes, now: Callable[[], float], database: Database, kafka_answers: bool
) -> list[Problem]:
    if not database.is_there or (step := database.step) is None:
        return []
    if said := explain_other_step(database.name, step):
        return [_describe_database_fault(said)]
    presence = read_recorder_presence(settings)
    lost = [
        *find_missed_letters(read_recorded_positions(settings, database), now()),
        *find_recorder_problems(settings, routes, database, presence, now, kafka_answers=kafka_answers),
    ]
    grow = find_growing_groups(FailureGroups(database, now).urgent(), now())
    with database.reading() as connection:
        number, since = letter_rows.count_unknown_letters(connection)
        awaiting = plan_rows.read_awaiting_plans(connection)
    return [
        *lost,
        *find_unknown_outcomes(number, since, now()),
        *find_awaiting_plans(awaiting, now()),
        *grow,
        *_read_failing_webhooks(database, now(), presence.missed),
    ]


def explain_other_step(name: str, step: str) -> str:
    """Return what to do about tables that are not those of this version; empty if they are."""
    if step == schema_migration.find_newest_step():
        return ""
    if not schema_migration.is_known_step(step):
        return (
            f"The dead letters' database ({name}) is at step {step}, which this version does not know: a newer version "
            "of celery-kafka-bridge has been here. Nothing is known of it here; use that version."
        )
    return (
        f"The dead letters' database ({name}) is at step {step}, and this version needs "
        f"{schema_migration.find_newest_step()}: start "
        "`bridge deadletters record`, or bring it there (`bridge deadletters migrate`). Nothing is known of it before."
    )


def find_missed_letters(positions: Iterable[PositionState], now: float) -> Iterator[Problem]:
    """Yield a problem for each partition of which Kafka dropped records before they were recorded, in the last day."""
    for position in positions:
        if position.missed_at is not None and now - position.missed_at / 1000 < TOLD_FOR:
            yield make_problem(
                DEAD_LETTERS_MISSED,
                since=position.missed_at / 1000,
                many=position.missed,
                lost=position.missed,
                records=f"{format_record_count(position.missed)} of {position.topic}-{position.partition} "
                f"{inflect_verb(position.missed, 'were')}",
                found=format_utc(position.missed_at / 1000),
                dead_letter_topic=position.topic,
            )


def find_unknown_outcomes(number: int, since: int | None, now: float) -> Iterator[Problem]:
    """Yield the problem of replayed letters with an unknown outcome.

    Parameters:
        since: ms since the epoch, when the oldest was sent back.
    """
    if number and since is not None:
        was, them = ("was", "it") if number == 1 else ("were", "them")
        yield make_problem(
            REPLAY_OUTCOME_UNKNOWN,
            since=since / 1000,
            many=number,
            letters=f"{format_letter_count(number)} {was}",
            began=format_since(since / 1000, now),
            them=them,
        )


def find_awaiting_plans(awaiting: Sequence[tuple[BulkPlan, int]], now: float) -> Iterator[Problem]:
    """Yield the problems of plans that await a second person.

    Parameters:
        awaiting: oldest first, each with since when, ms since the epoch.
    """
    for plan, since in awaiting[:SAID]:
        yield make_problem(
            PLAN_AWAITS_APPROVAL,
            "plan",
            since=since / 1000,
            many=plan.counts.letters,
            plan=plan.id,
            planner=make_printable(plan.planner or plan.by),
            action=plan.what,
            deliveries=format_count(plan.counts.letters, "delivery"),
            began=format_since(since / 1000, now),
        )
    if rest := awaiting[SAID:]:
        yield make_problem(
            PLAN_AWAITS_APPROVAL,
            "more plans",
            since=rest[0][1] / 1000,
            many=len(rest),
            plans=f"{format_count(len(rest), 'more plan')} {inflect_verb(len(rest), 'await')}",
            began=format_since(rest[0][1] / 1000, now),
        )


def find_growing_groups(groups: Sequence[GroupState], now: float) -> Iterator[Problem]:
    """Yield the problems of growing groups with open letters, the fastest first."""
    grow = [group for group in groups if group.growth and group.open]
    for group in grow[:SAID]:
        assert group.growth
        yield make_problem(
            FAILURE_GROUP_GROWS,
            "group",
            handler=group.handler or None,
            group=group.id,
            since=group.growth.since / 1000,
            many=group.open,
            failures=format_count(group.growth.failures, "dead letter"),
            name=_name_group(group),
            began=format_since(group.growth.since / 1000, now),
            usual=f"{group.growth.usual:g}",
            still_open=f"{group.open:,}",
        )
    rest = [group.growth.since / 1000 for group in grow[SAID:] if group.growth]
    if rest:
        handlers = sorted({group.handler for group in grow[SAID:]})
        yield make_problem(
            FAILURE_GROUP_GROWS,
            "more groups",
            handler=(handlers[0] or None) if len(handlers) == 1 else None,
            handlers=tuple(handlers) if len(handlers) > 1 else (),
            since=min(rest),
            many=len(rest),
            groups=f"{format_count(len(rest), 'more group')} of dead letters {inflect_verb(len(rest), 'grow')}",
            began=format_since(min(rest), now),
        )


def _describe_database_fault(sentence: str) -> Problem:
    """Return the problem of a database that cannot be read."""
    return make_problem(DEAD_LETTER_STORE_UNAVAILABLE, lost=None, fault=sentence)


def find_failing_webhooks(
    webhooks: Iterable[addresses.Webhook],
    backlogs: Mapping[str, webhook_rows.WebhookBacklog],
    now: float,
    missed: bool = False,
) -> Iterator[Problem]:
    """Yield the problems of webhooks whose receiver does not accept events, or did not lately.

    Parameters:
        missed: whether the missing recorder is reported already: it explains why nothing is sent.
    """
    for webhook in webhooks:
        backlog = backlogs[webhook.name]
        if webhook.off_at is not None:
            if webhook.off_why.startswith("HTTP"):
                yield make_problem(
                    WEBHOOK_FAILING,
                    "switched off",
                    since=webhook.off_at / 1000,
                    many=0,
                    webhook=webhook.name,
                    began=format_since(webhook.off_at / 1000, now),
                    why=webhook.off_why,
                )
        elif backlog.oldest is not None and (backlog.tries >= TRIED or _is_unsent(backlog, now)):
            if missed and not backlog.tries:
                continue
            yield make_problem(
                WEBHOOK_FAILING,
                "refuses" if backlog.tries else "not sent",
                since=backlog.oldest / 1000,
                many=backlog.waiting,
                webhook=webhook.name,
                began=format_since(backlog.oldest / 1000, now),
                waiting=f"{backlog.waiting:,} {inflect_verb(backlog.waiting, 'wait')}",
            )
        elif backlog.given_up_at is not None and now - backlog.given_up_at / 1000 < TOLD_FOR:
            yield make_problem(
                WEBHOOK_FAILING,
                "given up",
                since=backlog.given_up_at / 1000,
                many=backlog.given_up,
                lost=backlog.given_up,
                webhook=webhook.name,
                events=format_count(backlog.given_up, "event"),
                last="it" if backlog.given_up == 1 else "the last",
                given_up=format_utc(backlog.given_up_at / 1000),
            )


def _is_unsent(backlog: webhook_rows.WebhookBacklog, now: float) -> bool:
    """Return whether an event was never tried in the time in which a recorder tries it."""
    return backlog.oldest is not None and not backlog.tries and now - backlog.oldest / 1000 > UNSENT_FOR


def _read_failing_webhooks(database: Database, now: float, missed: bool = False) -> Iterator[Problem]:
    with database.reading() as connection:
        webhooks = addresses.list_webhooks(connection)
        backlogs = {each.name: each for each in webhook_rows.read_webhook_backlogs(connection)} if webhooks else {}
    return find_failing_webhooks(webhooks, backlogs, now, missed)


def _name_group(group: GroupState) -> str:
    names = (group.handler or "others", group.error_class or "no class of error", group.place)
    return make_printable(", ".join(filter(None, names)))


class DatabaseCheck(NamedTuple):
    """The result of a check of the database: a recorder starts despite a `warning`, and not with a `fault`."""

    level: Literal["ok", "warning", "fault"]
    text: str


def check_database(url: str) -> DatabaseCheck:
    """Check the database at an address without creating or changing it.

    Raises nothing: a database that does not answer is a fault.
    """
    try:
        database = Database(url)
        try:
            if not database.is_there and not database.may_be_made:
                return DatabaseCheck(
                    "fault",
                    f"the dead letters' database ({database.name}) cannot be created: its folder must exist, and be "
                    "writable by this user.",
                )
            if not database.is_there or (step := database.step) is None:
                return DatabaseCheck(
                    "ok", f"the dead letters' database ({database.name}) is created when it is first opened."
                )
            if said := explain_other_step(database.name, step):
                return DatabaseCheck("warning" if schema_migration.is_known_step(step) else "fault", said)
            return DatabaseCheck("ok", f"the dead letters' database ({database.name}) answers.")
        finally:
            database.close()
    except DeskUnavailable as error:
        return DatabaseCheck("fault", str(error))


def check_webhook_secrets(url: str, keys: str) -> list[DatabaseCheck]:
    """Return a warning if secrets of webhooks are stored plain, and for each webhook that these keys cannot decrypt.

    Raises nothing: a database that does not answer, or has no tables yet, is another check's.

    Parameters:
        keys: DEADLETTERS_SECRET_KEY.
    """
    try:
        database = Database(url)
        try:
            if not database.is_there or (step := database.step) is None or explain_other_step(database.name, step):
                return []
            with database.reading() as connection:
                hooks = webhook_rows.list_webhooks(connection)
        finally:
            database.close()
        return [*_find_plain_secrets(hooks, keys), *_find_unreadable_secrets(hooks, keys)]
    except (DeskUnavailable, ValueError):
        # A key that is none is a fault of the settings.
        return []


def _find_plain_secrets(hooks: Sequence[addresses.Webhook], keys: str) -> Iterator[DatabaseCheck]:
    if plain := sum(not is_encrypted(webhook) for webhook in hooks):
        todo = (
            "start the recorder again with DEADLETTERS_SECRET_KEY, which encrypts them"
            if keys
            else "set DEADLETTERS_SECRET_KEY to encrypt them"
        )
        yield DatabaseCheck(
            "warning",
            f"the secret and the address of {format_count(plain, 'webhook')} are in the database and its "
            f"backups as they are: who reads those can sign and send as the bridge. Keep them private, or {todo} "
            "(docs/how-to/secure.md).",
        )


def _find_unreadable_secrets(hooks: Sequence[addresses.Webhook], keys: str) -> Iterator[DatabaseCheck]:
    for webhook in hooks:
        try:
            WebhookCipher.from_keys(keys).decrypt(webhook)
        except WebhookRefused as error:
            if CHANGED in str(error):
                yield DatabaseCheck("warning", f"nothing is sent to the webhook {webhook.name}: {error}.")
                continue
            yield DatabaseCheck(
                "warning",
                f"the webhook {webhook.name} is {UNREADABLE}: a recorder with these settings sends nothing to it. "
                "Add its key, or remove the webhook and add it again.",
            )
