"""What of the desk needs a person, as sentences: letters that were missed, a recorder behind, groups that grow."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from bridge.deadletters.questions.groups import Grouped, Groups
from bridge.deadletters.store import migrating, positions
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.positions import Stood
from bridge.errors import DeskUnavailable, KafkaUnavailable
from bridge.handlers import Routes
from bridge.records.place import Place
from bridge.records.printable import printable
from bridge.settings import Settings
from bridge.topics.extents import extents
from bridge.topics.names import TopicNames
from bridge.upkeep.facts import clock, records, when

#: Groups that grow of which a sentence is said; of more there is one for all the others.
SAID: Final = 5
#: Seconds that a recorder has to take in what is there before it is behind; it is asked again so often.
TAKES: Final = 3.0
ASK_EVERY: Final = 0.5
#: Seconds for which it is told that letters were missed.
TOLD_FOR: Final = 86_400.0


def problems(settings: Settings, routes: Routes, now: Callable[[], float] = time.time) -> list[str]:
    """Everything of the desk that needs a person; nothing where no recorder was ever here.

    Raises nothing: a database that does not answer is a sentence. None is made, and none brought to another step.
    """
    try:
        database = Database(settings.environment.DEADLETTERS_DATABASE_URL)
        try:
            if not database.is_there or (step := database.step) is None:
                return []
            if said := another_step(database.name, step):
                return [said]
            lost = [*missed(_stood(settings, database), now())]
            return [*lost, *_behind(settings, routes, database, now), *growing(Groups(database, now).all(), now())]
        finally:
            database.close()
    except DeskUnavailable as error:
        return [str(error)]


def another_step(name: str, step: str) -> str:
    """What is to be done where a database's tables are not those of this version; empty: nothing."""
    if step == migrating.newest():
        return ""
    if not migrating.known(step):
        return (
            f"The dead letters' database ({name}) is at step {step}, which this version does not know: a newer version "
            "of celery-kafka-bridge has been here. Nothing is known of it here; use that version."
        )
    return (
        f"The dead letters' database ({name}) is at step {step}, and this version needs {migrating.newest()}: start "
        "`bridge deadletters record`, or bring it there (`bridge deadletters migrate`). Nothing is known of it before."
    )


def missed(stood: Iterable[Stood], now: float) -> Iterator[str]:
    """Records of dead-letter topics that Kafka dropped before they were recorded, in the last day."""
    for each in stood:
        if each.missed_at is not None and now - each.missed_at / 1000 < TOLD_FOR:
            yield (
                f"{records(each.missed)} of {each.topic}-{each.partition} were dropped by Kafka before they were "
                f"recorded, found {clock(each.missed_at / 1000)}. Raise the topic's retention (retention.ms), "
                "and keep `bridge deadletters record` running; `bridge audit` counts what is dead by the ledger."
            )


def behind(stood: Iterable[Stood], ends: Mapping[Place, int], now: float) -> Iterator[str]:
    """What Kafka has of dead letters and the database has not, by topic.

    Parameters:
        ends: of partitions that have records, the offset behind the last.
    """
    known = {(each.topic, each.partition): each for each in stood}
    lag: dict[str, int] = {}
    for place, end in ends.items():
        left = end - (known[place].next if place in known else 0)
        if left > 0:
            lag[place[0]] = lag.get(place[0], 0) + left
    for topic, left in sorted(lag.items()):
        last = max((each.at for each in known.values() if each.topic == topic), default=None)
        since = "and none ever was" if last is None else f"none {when(last / 1000, now)}"
        yield (
            f"{records(left)} of {topic} are not in the dead letters' database yet, {since}: start `bridge deadletters "
            "record`, or see its log and its /readyz."
        )


def growing(groups: Sequence[Grouped], now: float) -> Iterator[str]:
    """Groups with open letters of which there are more and more; those that grow most first."""
    grow = [group for group in groups if group.growth and group.open]
    for group in grow[:SAID]:
        assert group.growth
        yield (
            f"{group.growth.failures:,} dead letters of {_named(group)}, {when(group.growth.since / 1000, now)}; "
            f"{group.growth.usual:g} an hour were usual, {group.open:,} are open. "
            f"`bridge deadletters list --group {group.id}` shows them; mend what fails, then "
            f"`bridge deadletters replay --group {group.id}`."
        )
    if len(grow) > SAID:
        yield f"{len(grow) - SAID:,} more groups of dead letters grow: `bridge deadletters groups` lists them."


def _named(group: Grouped) -> str:
    names = (group.handler or "others", group.error_class or "no class of error", group.place)
    return printable(", ".join(filter(None, names)))


def _stood(settings: Settings, database: Database) -> list[Stood]:
    with database.reading() as connection:
        return positions.stood(connection, settings.group)


def _behind(settings: Settings, routes: Routes, database: Database, now: Callable[[], float]) -> list[str]:
    """Asked until it is not so, for some seconds: what has just come is taken in within one."""
    names = TopicNames.of(settings)
    topics = {*map(names.dead_letters, routes.topics), *(each.topic for each in _stood(settings, database))}
    try:
        there = extents(settings, topics)
    except KafkaUnavailable:
        # The status says so.
        return []
    ends = {each.place: each.end for each in there if each.first < each.end}
    give_up = time.monotonic() + TAKES
    while (found := [*behind(_stood(settings, database), ends, now())]) and time.monotonic() < give_up:
        time.sleep(ASK_EVERY)
    return found
