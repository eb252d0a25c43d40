"""`bridge status`: how the group stands, read from Kafka and Redis; no bridge or worker need be reachable.

Each is asked for itself: what one does not answer hides nothing of what the other knows.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from celery import Celery

from bridge.commands.asked import Asked, facts_of, take_decided
from bridge.commands.opened import opened
from bridge.commands.status_data import as_data
from bridge.commands.tiers import tiers
from bridge.errors import NothingAnswers
from bridge.handlers import Handler, Routes, changed_handlers
from bridge.ledger import Account, Accounts, Change, Fate, KnownLog, Ledger, LogBook
from bridge.ledger.deciding import merged
from bridge.ledger.underway import oldest
from bridge.settings import Settings
from bridge.topics.belonging import Belongings
from bridge.topics.control import published
from bridge.topics.dead_letters import RECENT, dead_letters
from bridge.topics.extents import extents
from bridge.topics.names import TopicNames
from bridge.upkeep.facts import Letters, TierFacts
from bridge.upkeep.gone import Gone, look


def status(app: Celery, settings: Settings, routes: Routes) -> dict[str, Any]:
    """What the group consumes and how far, what bridges and workers say of themselves, and what needs a person.

    Returns:
        `group`; `problems`: what needs a person, a sentence each; `topics`: per topic and partition `committed`,
        `end`, `lag`, or `None` if Kafka does not answer; `bridges` and `workers`: what each announces, or `None`
        without a Redis for it; `queues`: per queue `messages` and `workers`; `oldest`: per topic and handler the
        seconds that the oldest delivery has been under way; `halted`: per topic `why` and `since`, empty when
        nothing is; `breakers`: what handlers need and is held to be down, empty when nothing is; `parked`: what waits
        in retry and replay topics; `policies`: of handlers whose policy is not their code's, by whom and when it was
        changed, and to what; `unanswered`: what could not be asked, a sentence each.

    Raises:
        NothingAnswers: nothing could be told.
    """
    asked = facts_of(app, settings, routes)
    asked.extents = asked.ask(lambda: extents(settings, routes.topics))
    if asked.extents is None and asked.facts.bridges is None and asked.facts.queues is None:
        raise NothingAnswers("\n".join(asked.silent))
    if asked.extents is not None:
        _take_in(asked, app, settings, routes)
    asked.facts = replace(asked.facts, silent=tuple(asked.silent))
    return as_data(asked, routes.topics)


def _take_in(asked: Asked, app: Celery, settings: Settings, routes: Routes) -> None:
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
    if settings.ledger_url is None or asked.facts.bridges is None:
        return
    changed = changed_handlers(app, routes, asked.policies)
    there = asked.ask(lambda: _in_ledger(asked, settings, routes, changed))
    if there is not None:
        asked.facts = replace(
            asked.facts, letters=there[0], oldest=there[1], changes=there[2], tiers=there[3], gone=there[4]
        )
        belongings = Belongings(TopicNames.of(settings), routes.topics).of(each.topic for each in there[2])
        asked.facts = replace(asked.facts, sources={name: each.source for name, each in belongings.items()})


def _in_ledger(
    asked: Asked, settings: Settings, routes: Routes, changed: Collection[Handler]
) -> tuple[tuple[Letters, ...], Mapping[tuple[str, str], float], tuple[Change, ...], list[TierFacts], tuple[Gone, ...]]:
    with opened(settings, routes.topics) as (ledger, catalog):
        letters = tuple(
            each for topic in catalog.topic_ids for each in _dead(settings, ledger, topic, catalog.topic_ids[topic])
        )
        ages = dict(asked.facts.oldest)
        for account in Accounts(ledger).everyone():
            # Bridges tell of the handlers that they have; of those that were renamed or removed none does.
            told = asked.facts.bridges and any(h.name == account.handler for h in routes.of(account.topic))
            if told or catalog.topic_ids.get(account.topic) != KnownLog.of(account.topic_id).topic_id:
                continue
            if (found := oldest(ledger, account)) is not None:
                where = (account.topic, account.handler)
                ages[where] = max(ages.get(where, 0.0), found.seconds)
        # Of retry and replay topics too, those among them that are gone.
        changes = tuple(each for each in LogBook(ledger).told() if catalog.source_of(each.topic) in routes.topics)
        gone = tuple(look(settings, ledger, catalog))
        return letters, ages, changes, tiers(settings, routes, ledger, catalog, changed), gone


def _dead(settings: Settings, ledger: Ledger, topic: str, topic_id: str) -> Iterator[Letters]:
    """The dead letters of a topic whose deliveries are dead still, by handler."""
    found = dead_letters(settings, topic, RECENT)
    by_account: dict[Account, dict[int, Any]] = {}
    log_of = cache(LogBook(ledger).log_id)
    for letter in found.letters:
        whose = letter.whose
        account = Account(whose.handler, topic, log_of(topic, topic_id, whose.partition), whose.partition)
        if whose.is_of(account.topic_id):
            by_account.setdefault(account, {})[whose.offset] = letter
    by_handler: dict[str, list[Any]] = {}
    accounts = list(by_account)
    fates = ledger.fates_of([(account, sorted(by_account[account])) for account in accounts])
    for account, known in zip(accounts, fates, strict=True):
        for offset, fate in zip(sorted(by_account[account]), known, strict=True):
            if fate == Fate.DEAD:
                by_handler.setdefault(account.handler, []).append(by_account[account][offset])
    for handler, letters in sorted(by_handler.items()):
        letters.sort(key=lambda letter: letter.failed_at)
        last = letters[-1]
        name = TopicNames.of(settings).dead_letters(topic)
        since = letters[0].failed_at
        yield Letters(name, handler, len(letters), since, last.reason, last.error[:300], found.more)
