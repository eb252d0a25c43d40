"""`bridge status`: how the group stands, read from Kafka and Redis; no bridge or worker need be reachable.

Each is asked for itself: what one does not answer hides nothing of what the other knows.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeVar

from celery import Celery

from bridge.commands.halt import halts, shown
from bridge.commands.opened import opened
from bridge.commands.policy import fault_of, stale
from bridge.commands.problems import problems
from bridge.commands.tiers import tiers
from bridge.errors import HandoffFailed, KafkaUnavailable, LedgerUnavailable, NothingAnswers
from bridge.handlers import Handler, Routes, changed_handlers
from bridge.handoff.broker import Broker
from bridge.handoff.messages import LOOKED_AT, Messages
from bridge.ledger import Account, Accounts, Change, Fate, KnownLog, Ledger, LogBook
from bridge.ledger.breakers import Breakers
from bridge.ledger.control import NOTHING, Mirror, Mirrored
from bridge.ledger.deciding import merged
from bridge.ledger.health import health
from bridge.ledger.members import Members
from bridge.ledger.underway import oldest
from bridge.records.control import Decision
from bridge.records.gates import gated_dependency, topic_gate
from bridge.records.policies import Data, changed_policies, summary, values, words
from bridge.settings import Settings
from bridge.topics.belonging import Belongings
from bridge.topics.control import published
from bridge.topics.dead_letters import RECENT, dead_letters
from bridge.topics.extents import Extent, extents
from bridge.topics.names import TopicNames
from bridge.upkeep.facts import Down, Facts, HandlerFacts, Letters, Memory, TierFacts, iso
from bridge.upkeep.gone import Gone, look
from bridge.upkeep.uncared import unconsumed_queues

#: Seconds for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0

Found = TypeVar("Found")


@dataclass
class _Asked:
    """What was found so far, and why the rest could not be."""

    facts: Facts
    extents: list[Extent] | None = None
    mirrored: Mirrored = NOTHING
    policies: Mapping[str, Data] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def ask(self, question: Callable[[], Found]) -> Found | None:
        """The answer, or None where there is none."""
        try:
            return question()
        except KafkaUnavailable as error:
            why = f"{error} Start it, or mend the network or KAFKA_BOOTSTRAP_SERVERS: until then nothing new is read."
        except LedgerUnavailable as error:
            why = str(error)
        except HandoffFailed as error:
            why = f"The Celery broker does not answer: {error}. Start it, or mend the network or CELERY_BROKER_URL."
        if why not in self.silent:
            self.silent.append(why)
        return None


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
    return _shown(asked, settings, routes)


def facts_of(app: Celery, settings: Settings, routes: Routes) -> _Asked:
    """What Redis and the broker know."""
    handlers = tuple(HandlerFacts(h.name, h.topics, h.queue, h.longest_wait) for h in routes)
    asked = _Asked(Facts(time.time(), settings.group, handlers, app=settings.app))
    if (found := Ledger.of(settings, timeout=ANSWER_WITHIN)) is not None:
        with closing(found) as ledger:
            asked.ask(lambda: _members(asked, ledger))
            if not asked.silent:
                asked.ask(lambda: _breakers(asked, ledger, routes))
        _decided(asked, app, routes, asked.mirrored.in_force())
    # A Redis that is frozen costs seconds for each question: the same one is not asked again.
    if not (settings.one_redis and asked.silent):
        asked.ask(lambda: _queues(asked, app, routes))
    return asked


def _members(asked: _Asked, ledger: Ledger) -> None:
    bridges, workers = Members(ledger, "bridges"), Members(ledger, "workers")
    facts = replace(asked.facts, bridges=bridges.living(), workers=workers.living())
    ages: dict[tuple[str, str], float] = {}
    for state in (facts.bridges or {}).values():
        for each in state.get("oldest", ()):
            where = (each["topic"], each["handler"])
            ages[where] = max(ages.get(where, 0.0), each["seconds"])
    found = health(ledger)
    memory = (Memory(ledger.where, found.used, found.allowed, found.disk),)
    seen = {**bridges.last_seen(), **workers.last_seen()}
    asked.mirrored = Mirror(ledger).read()
    asked.facts = replace(facts, oldest=ages, memory=memory, seen=seen)


def _decided(asked: _Asked, app: Celery, routes: Routes, standing: Mapping[str, Decision]) -> None:
    """What people, or `StopConsuming`, have decided for the group."""
    # What is not in force is said as a problem.
    changed = changed_policies(standing)
    asked.policies = {name: data for name, data in changed.items() if fault_of(app, routes, name, data) is None}
    asked.facts = replace(asked.facts, halts=halts(standing), stale=tuple(stale(app, routes, standing)))


def _breakers(asked: _Asked, ledger: Ledger, routes: Routes) -> None:
    if not routes.terms:
        return
    found = [
        Down(name, known.state, known.since, known.why, tuple(h.name for h in routes if name in h.needs))
        for name, known in sorted(Breakers(ledger).open_ones(sorted(routes.terms)).items())
    ]
    asked.facts = replace(asked.facts, breakers=tuple(found))


def _waiting(group: str, aside: Mapping[str, int]) -> dict[str, int]:
    """How many messages wait for each dependency of a group, by what each gate has set aside."""
    found: dict[str, int] = {}
    for gate, count in aside.items():
        if (dependency := gated_dependency(group, gate)) is not None:
            found[dependency] = found.get(dependency, 0) + count
    return found


def _queues(asked: _Asked, app: Celery, routes: Routes) -> None:
    broker = Broker(app)
    try:
        lengths, failing = broker.lengths(routes.queues), tuple(Messages(broker).failing(routes.queues))
        retries = broker.waiting(routes.queues)
        aside = broker.aside()
        halted = {topic: aside.get(topic_gate(asked.facts.group, topic), 0) for topic in routes.topics}
        waiting = _waiting(asked.facts.group, aside)
        down = tuple(replace(each, aside=waiting.get(each.dependency, 0)) for each in asked.facts.breakers)
        unnamed = {name: count for name, count in waiting.items() if count and name not in routes.terms}
        asked.facts = replace(
            asked.facts, queues=lengths, failing=failing, retries=retries, breakers=down, aside=halted, unnamed=unnamed
        )
        # Where nobody consumes, what waits is told by its deliveries: a message of a batch has many.
        idle = {queue: lengths[queue] + retries.get(queue, 0) for queue in unconsumed_queues(asked.facts)}
        counted = Messages(broker).deliveries([queue for queue, count in idle.items() if 0 < count <= LOOKED_AT])
        asked.facts = replace(asked.facts, deliveries=counted)
    finally:
        broker.close()


def _take_in(asked: _Asked, app: Celery, settings: Settings, routes: Routes) -> None:
    """What Kafka knows, and what only both of them do."""
    lag: dict[str, int] = dict.fromkeys(routes.topics, 0)
    partitions: dict[str, int] = {}
    for extent in asked.extents or ():
        lag[extent.topic] += extent.lag
        partitions[extent.topic] = partitions.get(extent.topic, 0) + 1
    asked.facts = replace(asked.facts, lag=lag, partitions=partitions)
    # Redis may have been wiped, and no bridge run to put back what was decided.
    if (decided := asked.ask(lambda: published(settings))) is not None:
        _decided(asked, app, routes, merged(decided.standing, asked.mirrored).in_force())
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
    asked: _Asked, settings: Settings, routes: Routes, changed: Collection[Handler]
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


# As JSON


def _shown(asked: _Asked, settings: Settings, routes: Routes) -> dict[str, Any]:
    facts = asked.facts
    return {
        "group": settings.group,
        "problems": problems(facts),
        "topics": None if asked.extents is None else _topics(routes.topics, asked.extents),
        "bridges": _with_times(facts.bridges),
        "workers": _with_times(facts.workers),
        "queues": None
        if facts.queues is None
        else {
            queue: {
                "messages": length,
                "workers": None
                if facts.workers is None
                else sum(queue in state["queues"] for state in facts.workers.values()),
                "backlog": _backlog(facts, queue),
            }
            for queue, length in facts.queues.items()
        },
        "oldest": [
            {"topic": topic, "handler": handler, "seconds": round(seconds, 1)}
            for (topic, handler), seconds in sorted(facts.oldest.items())
        ],
        "parked": None if asked.extents is None else _parked(facts),
        "halted": {topic: shown(halt) for topic, halt in facts.halts.items()},
        "policies": {name: f"{summary(data)}: {words(values(data))}" for name, data in asked.policies.items()},
        "breakers": {
            each.dependency: {
                "state": each.state,
                "since": iso(each.since),
                "why": each.why,
                "handlers": list(each.handlers),
                "waiting": each.aside,
            }
            for each in facts.breakers
        },
        "unanswered": asked.silent,
    }


def _backlog(facts: Facts, queue: str) -> Any:
    """What is to be done, as a bridge says it: each says it of the whole group. `None` where none runs."""
    said = (state.get("backlog", {}).get(queue) for state in (facts.bridges or {}).values())
    return next((each for each in said if each), None)


def _parked(facts: Facts) -> list[dict[str, Any]]:
    """What waits in Kafka for its time, or to be replayed, and what of it is due next, or has been for how long."""
    found = []
    for tier in facts.tiers:
        if tier.kind in ("retry", "replay") and (tier.records or tier.use == "needed"):
            first = min(tier.first_due.values(), default=None)
            found.append(
                {
                    "source": tier.source,
                    "topic": tier.topic,
                    "delay": tier.delay,
                    "use": tier.use,
                    "records": tier.records,
                    "next_due": None if first is None else iso(first),
                    "late_seconds": 0.0 if first is None else round(max(0.0, facts.now - first), 1),
                }
            )
    return found


def _topics(names: Iterable[str], found: Iterable[Extent]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {topic: {} for topic in names}
    for extent in found:
        topics[extent.topic][str(extent.partition)] = {
            "committed": extent.committed,
            "end": extent.end,
            "lag": extent.lag,
        }
    return topics


#: Where what is announced holds times.
_TIMES = ("since", "started", "paused_since", "obstacles_since", "unaccounted", "behind")


def _with_times(members: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """What members announce, its times as people and programs read them."""
    if members is None:
        return None
    return {name: {key: _timed(value, key in _TIMES) for key, value in s.items()} for name, s in members.items()}


def _timed(value: Any, times: bool) -> Any:
    match value:
        case dict():
            return {key: _timed(each, times and key not in ("partition", "count")) for key, each in value.items()}
        case list():
            return [_timed(each, times) for each in value]
        case float() | int() if times:
            return iso(value)
    return value
