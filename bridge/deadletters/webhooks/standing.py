"""Which alarms there are now: of groups by the desk's database, of topics and dependencies by Redis and Kafka."""

from contextlib import closing
from dataclasses import replace
from typing import Final

from bridge.deadletters.questions.groups import Grouped, Groups
from bridge.deadletters.store.database import Database
from bridge.deadletters.webhooks import events
from bridge.deadletters.webhooks.events import Alarm
from bridge.handlers import Routes
from bridge.ledger import Ledger
from bridge.ledger.breakers import Breakers, Known
from bridge.ledger.control import Mirror
from bridge.ledger.deciding import looked_up, standing
from bridge.records.control import Decision, halted_topic
from bridge.settings import Settings
from bridge.settings.masks import rules

#: In the place of what a handler, or its error, has said where fields are masked.
NOT_TOLD: Final = "what its handler said may quote what is masked, and is not told"


def of_topics(settings: Settings, routes: Routes) -> tuple[list[Alarm], set[str]]:
    """Topics that are halted, and dependencies that are held to be down.

    Returns:
        Those, and the keys of what may neither begin nor end by this look: a dependency that is being tried again.

    Raises:
        LedgerUnavailable, KafkaUnavailable, NotDecided: what may know of one did not answer.
    """
    ledger = Ledger.of(settings)
    if ledger is None:
        return _halts(settings, None), set()
    with closing(ledger):
        breakers, unsure = _breakers(settings, routes, ledger)
        return [*_halts(settings, Mirror(ledger)), *breakers], unsure


def of_groups(database: Database) -> list[Alarm]:
    """Groups that grow, or failed again though they were fixed, of which letters are open.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    return [alarm for group in Groups(database).urgent() for alarm in _of_group(group)]


def _of_group(group: Grouped) -> list[Alarm]:
    grows = [] if group.growth is None else [events.growing(group, group.growth)]
    causes = [events.regression_of_cause(group, each) for each in group.cause_fixes if each.regressed_at is not None]
    return [*grows, *([] if group.regressed_at is None else [events.regression(group)]), *causes]


def _halts(settings: Settings, mirror: Mirror | None) -> list[Alarm]:
    decided = standing(settings, None) if mirror is None else looked_up(settings, mirror)
    halts = {topic: each for key, each in decided.items() if each.data is not None and (topic := halted_topic(key))}
    told = {topic: _halt(settings, topic, each) for topic, each in sorted(halts.items())}
    return [events.halted(settings.group, topic, each) for topic, each in told.items()]


def _halt(settings: Settings, topic: str, halt: Decision) -> Decision:
    """A halt as it is told; what a person says stays."""
    masks = rules(settings.environment.DEADLETTERS_MASK)
    if "handler" not in (halt.data or {}) or not masks.of(topic):
        return halt
    return replace(halt, change=halt.change._replace(why=NOT_TOLD))


def _breaker(settings: Settings, known: Known) -> Known:
    """A dependency as it is told: its error was of a record of any topic."""
    return known._replace(why=NOT_TOLD) if rules(settings.environment.DEADLETTERS_MASK) else known


def _breakers(settings: Settings, routes: Routes, ledger: Ledger) -> tuple[list[Alarm], set[str]]:
    found, unsure = [], set()
    for name, known in sorted(Breakers(ledger).open_ones(sorted(routes.terms)).items()):
        handlers = [each.name for each in routes if name in each.needs]
        alarm = events.opened(settings.group, name, _breaker(settings, known), handlers)
        if known.state == "ramping":
            unsure.add(alarm.key)
        else:
            found.append(alarm)
    return found, unsure
