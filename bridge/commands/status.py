"""`bridge status`: how the group stands, read from Kafka and Redis; no bridge or worker need be reachable.

Each is asked for itself: what one does not answer hides nothing of what the other knows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

from celery import Celery

from bridge.commands.asked import ANSWER_WITHIN, Asked, facts_of, take_decided
from bridge.commands.opened import opened
from bridge.commands.status_data import as_data
from bridge.commands.tiers import tiers
from bridge.commands.unquoted import unquoted
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NothingAnswers
from bridge.handlers import Handler, Routes, changed_handlers
from bridge.kafka import admin_client
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, LogBook
from bridge.ledger.deciding import merged
from bridge.ledger.underway import oldest
from bridge.records.dead_letter import DeadLetter
from bridge.settings import Settings
from bridge.topics.belonging import Belongings
from bridge.topics.catalog import Catalog
from bridge.topics.control import published
from bridge.topics.dead_letters import where
from bridge.topics.extents import Extent, extents
from bridge.topics.names import TopicNames
from bridge.topics.recent import Recent
from bridge.upkeep.facts import Facts, Letters
from bridge.upkeep.gone import look
from bridge.upkeep.group_members import find_foreign_topics, unknown_members


def status(
    app: Celery, settings: Settings, routes: Routes, *, quotes: bool = True, recent: Recent | None = None
) -> dict[str, Any]:
    """What the group consumes and how far, what bridges and workers say of themselves, and what needs a person.

    Parameters:
        quotes: whether it says what errors say.
        recent: the latest dead letters as far as they were read; `None`: they are read anew.

    Returns:
        `group`; `problems`: what needs a person, a sentence each, and `problem_values`: each as values; `topics`: per
        topic and partition `committed`, `end`, `lag`, or `None` if Kafka does not answer; `bridges` and `workers`:
        what each announces, or `None` without a Redis for it; `unconfirmed`: of both kinds the members that a Redis
        which refuses writes still lists, with `last_seen`; `queues`: per queue `messages` and `workers`; `oldest`:
        per topic and handler the seconds that the oldest delivery has been under way; `halted`: per topic `why` and
        `since`, empty when nothing is; `breakers`: what handlers need and is held to be down, empty when nothing is;
        `parked`: what waits in retry and replay topics, or `None` if Kafka or Redis does not answer; `policies`: of
        handlers whose policy is not their code's, by whom and when it was changed, and to what; `counts`: by topic and
        handler, how many deliveries were handled, attempts failed, dead letters written and deliveries replayed in each
        of the last 60 minutes and 24 hours;
        `unanswered`: what could not be asked, a sentence each;
        `unknown`: what is not known although Kafka and Redis answer, a sentence each.

    Raises:
        NothingAnswers: nothing could be told.
    """
    asked = facts_of(app, settings, routes)
    asked.extents = asked.ask(lambda: extents(settings, routes.topics))
    if asked.extents is None and asked.facts.bridges is None and asked.facts.queues is None:
        raise NothingAnswers("\n".join(asked.silent))
    if asked.extents is not None:
        _take_in(asked, app, settings, routes, recent or Recent(settings))
    asked.facts = replace(asked.facts, silent=tuple(asked.silent))
    if not quotes:
        asked.facts = unquoted(asked.facts)
    return as_data(asked, routes.topics)


def _take_in(asked: Asked, app: Celery, settings: Settings, routes: Routes, recent: Recent) -> None:
    """What Kafka knows, and what only both of them do."""
    lag: dict[str, int] = dict.fromkeys(routes.topics, 0)
    partitions: dict[str, int] = {}
    for extent in asked.extents or ():
        lag[extent.topic] += extent.lag
        partitions[extent.topic] = partitions.get(extent.topic, 0) + 1
    asked.facts = replace(asked.facts, lag=lag, partitions=partitions)
    # Redis may have been wiped, and no bridge run to put back what was decided.
    if (decided := asked.ask(lambda: published(settings))) is not None:
        take_decided(asked, app, routes, merged(decided.standing, asked.mirrored).in_force())
    # Who lives may be unknown where Redis refuses announcements: all else it knows.
    if not asked.has_ledger:
        return
    changed = changed_handlers(app, routes, asked.policies)
    asked.ask(lambda: _take_in_ledger(asked, settings, routes, changed, recent))
    _take_in_other_members(asked, settings, routes)


def _take_in_ledger(
    asked: Asked, settings: Settings, routes: Routes, changed: Collection[Handler], recent: Recent
) -> None:
    with opened(settings, routes.topics) as (ledger, catalog):
        # Of retry and replay topics too, those among them that are gone.
        changes = tuple(each for each in LogBook(ledger).told() if catalog.source_of(each.topic) in routes.topics)
        belongings = Belongings(TopicNames.of(settings), routes.topics).of(each.topic for each in changes)
        there = where(settings, catalog.topic_ids)
        dead = (letters for each in there.items() for letters in _dead(settings, ledger, catalog, recent, *each))
        asked.facts = replace(
            asked.facts,
            letters=tuple(dead),
            oldest=_oldest(asked.facts, ledger, routes, catalog.topic_ids),
            changes=changes,
            tiers=tiers(settings, routes, ledger, catalog, changed),
            gone=tuple(look(settings, ledger, catalog)),
            sources={name: each.source for name, each in belongings.items()},
        )
        asked.knows_parked = True


def _take_in_other_members(asked: Asked, settings: Settings, routes: Routes) -> None:
    """Another application in the group; that nobody can tell is no sign of none."""
    if (ledger := Ledger.once(settings, ANSWER_WITHIN)) is None:
        return
    try:
        with closing(ledger):
            foreign = find_foreign_topics(admin_client(settings.kafka), settings, ledger, routes.topics)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        asked.unknown.append(unknown_members(settings.group, str(error)))
        return
    if foreign is None:
        asked.unknown.append(unknown_members(settings.group))
    else:
        asked.facts = replace(asked.facts, foreign=foreign)


def _oldest(facts: Facts, ledger: Ledger, routes: Routes, topic_ids: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """By topic and handler, for how long the oldest has been under way: as bridges tell, and where none does."""
    ages = dict(facts.oldest)
    for account in Accounts(ledger).everyone():
        # Bridges tell of the handlers that they have; of those that were renamed or removed none does.
        told = facts.bridges and any(handler.name == account.handler for handler in routes.of(account.topic))
        if told or topic_ids.get(account.topic) != KnownLog.of(account.topic_id).topic_id:
            continue
        if (found := oldest(ledger, account)) is not None:
            where = (account.topic, account.handler)
            ages[where] = max(ages.get(where, 0.0), found.seconds)
    return ages


def _dead(
    settings: Settings, ledger: Ledger, catalog: Catalog, recent: Recent, topic: str, there: Sequence[Extent]
) -> Iterator[Letters]:
    """The dead letters of a topic whose deliveries are dead still, by handler."""
    found = recent.of(topic, there)
    name = TopicNames.of(settings).dead_letters(topic)
    by_handler: dict[str, list[DeadLetter]] = {}
    for letter in _dead_still(ledger, topic, catalog.topic_ids[topic], found.letters):
        by_handler.setdefault(letter.whose.handler, []).append(letter)
    for handler, letters in sorted(by_handler.items()):
        letters.sort(key=lambda letter: letter.failed_at)
        last = letters[-1]
        yield Letters(name, handler, len(letters), letters[0].failed_at, last.reason, last.error[:300], found.more)


def _dead_still(ledger: Ledger, topic: str, topic_id: str, letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Of those of the log that the topic has now, the last of each delivery that the ledger has as dead."""
    by_account: dict[Account, dict[int, DeadLetter]] = {}
    log_of = cache(LogBook(ledger).log_id)
    for letter in letters:
        whose = letter.whose
        account = Account(whose.handler, topic, log_of(topic, topic_id, whose.partition), whose.partition)
        if whose.is_of(account.topic_id):
            by_account.setdefault(account, {})[whose.offset] = letter
    fates = ledger.fates_of([(account, sorted(by_offset)) for account, by_offset in by_account.items()])
    for by_offset, known in zip(by_account.values(), fates, strict=True):
        yield from (by_offset[at] for at, fate in zip(sorted(by_offset), known, strict=True) if fate == Fate.DEAD)
