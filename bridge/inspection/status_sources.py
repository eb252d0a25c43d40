"""The sources of the status: what Redis and the Celery broker know of a group, each asked for itself; what one does
not answer hides nothing of the others.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from celery import Celery

from bridge.dispatch.broker_search import NONE_ASIDE, WAITING_READ, BrokerSearch, SetAside, count_set_aside
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, KafkaUnavailable, LedgerUnavailable
from bridge.formats.gate_names import gated_dependency, topic_gate
from bridge.formats.group_decision import GroupDecision, PolicyData, find_changed_policies
from bridge.handler_routes import Routes
from bridge.inspection.handler_policy import find_policy_fault, find_stale_policies
from bridge.inspection.topic_halt import find_halts
from bridge.jobs.deployment_problems import find_unconsumed_queues
from bridge.jobs.group_facts import DependencyDown, GroupFacts, HandlerFacts, RedisMemory, format_utc
from bridge.kafka.partition_offsets import Extent
from bridge.ledger import Ledger
from bridge.ledger.attempt_statistics import read_counts, read_outcomes, read_unpublished
from bridge.ledger.circuit_breakers import CircuitBreakers
from bridge.ledger.decision_store import NO_DECISIONS, DecisionMirror, MirroredDecisions
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.redis_health import read_redis_health
from bridge.settings import Settings

#: Seconds for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0

Found = TypeVar("Found")


@dataclass
class StatusSources:
    """What was found so far, and why the rest could not be.

    Attributes:
        silent: why something does not answer, a sentence each.
        unknown: what is not known although everything answers, a sentence each.
        has_ledger: whether the ledger has answered.
    """

    facts: GroupFacts
    extents: list[Extent] | None = None
    knows_parked: bool = False
    mirrored: MirroredDecisions = NO_DECISIONS
    policies: Mapping[str, PolicyData] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    has_ledger: bool = False

    def ask(self, question: Callable[[], Found]) -> Found | None:
        """The answer, or None where there is none."""
        try:
            return question()
        except KafkaUnavailable as error:
            why = f"{error} Start it, or fix the network or KAFKA_BOOTSTRAP_SERVERS: until then nothing new is read."
        except LedgerUnavailable as error:
            why = str(error)
        except HandoffFailed as error:
            why = f"The Celery broker does not answer: {error}. {_advice(str(error))}"
        self.note_silent(why)
        return None

    def note_silent(self, why: str) -> None:
        """Note once why something does not answer."""
        if why not in self.silent:
            self.silent.append(why)


def _advice(said: str) -> str:
    if said.startswith("OutOfMemoryError"):
        return "It is full: raise its maxmemory, or let workers empty the queues."
    return "Start it, or fix the network or CELERY_BROKER_URL."


def gather_facts(app: Celery, settings: Settings, routes: Routes) -> StatusSources:
    """What Redis and the broker know."""
    handlers = tuple(HandlerFacts(h.name, h.topics, h.queue, h.longest_wait) for h in routes)
    asked = StatusSources(GroupFacts(time.time(), settings.group, handlers, app=settings.app))
    mute: str | None = None
    if (found := Ledger.once(settings, ANSWER_WITHIN)) is not None:
        with closing(found) as ledger:
            mute = asked.ask(lambda: _members(asked, ledger))
            if mute is not None:
                asked.ask(lambda: _breakers(asked, ledger, routes))
                asked.ask(lambda: _counts(asked, ledger))
        take_decisions(asked, app, routes, asked.mirrored.in_force())
    # A Redis that is frozen costs seconds for each question: the same one is not asked again.
    if not (settings.one_redis and asked.silent):
        asked.ask(lambda: _queues(asked, app, routes))
    if mute:
        asked.note_silent(
            f"Redis takes no announcements of bridges and workers ({mute}): those that are not listed may run"
            f"{_unconfirmed(asked.facts)}. Let Redis write again: until then nothing is handed off or marked."
        )
    return asked


def _unconfirmed(facts: GroupFacts) -> str:
    """The members that nobody can confirm: `; not confirmed: bridge a, worker b (the last announced itself …)`."""
    names = [f"{kind[:-1]} {name}" for kind, members in facts.unconfirmed.items() for name in members]
    if not names:
        return ""
    times = [at for members in facts.unconfirmed.values() for at in members.values() if at is not None]
    last = f" (the last announced itself {format_utc(max(times))})" if times else ""
    return f"; not confirmed: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}{last}"


def _members(asked: StatusSources, ledger: Ledger) -> str:
    """Take in who lives; return why those that are not listed may live all the same, empty if they do not."""
    bridges, workers = GroupMembers(ledger, "bridges"), GroupMembers(ledger, "workers")
    there, working = bridges.living(), workers.living()
    facts = replace(
        asked.facts,
        bridges=None if bridges.mute and not there else there,
        workers=None if workers.mute and not working else working,
    )
    ages: dict[tuple[str, str], float] = {}
    for state in (facts.bridges or {}).values():
        for each in state.get("oldest", ()):
            where = (each["topic"], each["handler"])
            ages[where] = max(ages.get(where, 0.0), each["seconds"])
    found = read_redis_health(ledger)
    memory = (RedisMemory(ledger.where, *found),)
    here, at_work = bridges.last_seen(), workers.last_seen()
    seen = {**here, **at_work}
    # Redis knows of no single member when it announced itself last, once its announcement is over.
    unconfirmed = {
        "bridges": dict.fromkeys(bridges.unconfirmed, max(here.values(), default=None)),
        "workers": dict.fromkeys(workers.unconfirmed, max(at_work.values(), default=None)),
    }
    asked.mirrored, asked.has_ledger = DecisionMirror(ledger).read(), True
    asked.facts = replace(facts, oldest=ages, memory=memory, seen=seen, lost=bridges.lost(), unconfirmed=unconfirmed)
    return bridges.mute or workers.mute


def take_decisions(asked: StatusSources, app: Celery, routes: Routes, standing: Mapping[str, GroupDecision]) -> None:
    """What people, or `StopConsuming`, have decided for the group."""
    # What is not in force is said as a problem.
    changed = find_changed_policies(standing)
    asked.policies = {
        name: data for name, data in changed.items() if find_policy_fault(app, routes, name, data) is None
    }
    asked.facts = replace(
        asked.facts, halts=find_halts(standing), stale=tuple(find_stale_policies(app, routes, standing))
    )


def _breakers(asked: StatusSources, ledger: Ledger, routes: Routes) -> None:
    if not routes.terms:
        return
    found = [
        DependencyDown(
            name,
            known.state,
            known.since,
            known.why,
            tuple(h.name for h in routes if name in h.needs),
            tried=known.tried,
            next=known.next,
            silent=known.silent,
        )
        for name, known in sorted(CircuitBreakers(ledger).open_ones(sorted(routes.terms)).items())
    ]
    asked.facts = replace(asked.facts, breakers=tuple(found))


def _counts(asked: StatusSources, ledger: Ledger) -> None:
    whose = [(topic, handler.name) for handler in asked.facts.handlers for topic in handler.topics]
    now, names = asked.facts.now, [handler.name for handler in asked.facts.handlers]
    asked.facts = replace(
        asked.facts,
        counts=read_counts(ledger, whose, now),
        outcomes=read_outcomes(ledger, whose, now),
        unpublished=read_unpublished(ledger, names, now),
        costs=_costs(asked.facts),
    )


def _costs(facts: GroupFacts) -> dict[str, float]:
    """What a delivery of each handler takes, as bridges say it: it is known by the Kafka cluster, which they know."""
    said = (state.get("costs") for state in (facts.bridges or {}).values())
    found = next((each for each in said if isinstance(each, Mapping)), {})
    return {name: float(cost) for name, cost in found.items() if isinstance(cost, int | float)}


def _waiting(group: str, aside: Mapping[str, SetAside]) -> dict[str, SetAside]:
    """What waits for each dependency of a group, by what each gate has set aside."""
    found: dict[str, SetAside] = {}
    for gate, count in aside.items():
        if (dependency := gated_dependency(group, gate)) is not None:
            found[dependency] = found.get(dependency, NONE_ASIDE).plus(count)
    return found


def _queues(asked: StatusSources, app: Celery, routes: Routes) -> None:
    broker = CeleryBroker(app)
    try:
        lengths, failing = broker.lengths(routes.queues), tuple(BrokerSearch(broker).failing(routes.queues))
        retries = broker.waiting(routes.queues)
        aside = count_set_aside(broker)
        halted = {topic: aside.get(topic_gate(asked.facts.group, topic), NONE_ASIDE) for topic in routes.topics}
        waiting = _waiting(asked.facts.group, aside)
        down = tuple(replace(each, aside=waiting.get(each.dependency, NONE_ASIDE)) for each in asked.facts.breakers)
        unnamed = {name: count for name, count in waiting.items() if count.messages and name not in routes.terms}
        asked.facts = replace(
            asked.facts, queues=lengths, failing=failing, retries=retries, breakers=down, aside=halted, unnamed=unnamed
        )
        # Where nobody consumes, what waits is told by its deliveries: a message of a batch has many.
        idle = {queue: lengths[queue] + retries.get(queue, 0) for queue in find_unconsumed_queues(asked.facts)}
        counted = BrokerSearch(broker).deliveries([queue for queue, count in idle.items() if 0 < count <= WAITING_READ])
        asked.facts = replace(asked.facts, deliveries=counted)
    finally:
        broker.close()
