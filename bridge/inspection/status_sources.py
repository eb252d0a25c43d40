"""The sources of the status: facts of a group from Redis and the Celery broker, each asked independently."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from celery import Celery

from bridge.dispatch.broker_search import NONE_ASIDE, WAITING_READ, BrokerSearch, SetAside, count_set_aside
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, KafkaUnavailable, LedgerUnavailable
from bridge.formats.gate_names import gated_dependency, held_gate, topic_gate
from bridge.formats.group_decision import GroupDecision, PolicyData, find_changed_policies, limit_subject
from bridge.formats.halt_scope import SmallHalts, find_small_halts
from bridge.handler_routes import Routes
from bridge.jobs.deployment_problems import find_unconsumed_queues
from bridge.jobs.group_facts import DependencyDown, GroupFacts, HandlerFacts, HandlerHalt, RedisMemory, format_utc
from bridge.kafka.clients import login_errors
from bridge.kafka.partition_offsets import Extent
from bridge.ledger import Ledger
from bridge.ledger.attempt_statistics import read_outcomes, read_unpublished
from bridge.ledger.breaker_state import CircuitBreakers
from bridge.ledger.decision_store import NO_DECISIONS, DecisionMirror, MirroredDecisions
from bridge.ledger.delivery_counts import read_counts
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.limit_state import LimitLedger, LimitStatus
from bridge.ledger.redis_connection import explain_refused_login
from bridge.ledger.redis_health import read_redis_health
from bridge.operator_actions.handler_policy import find_policy_fault, find_stale_policies, make_policy_view
from bridge.operator_actions.topic_halt import find_halts
from bridge.settings import Settings, hide_password
from lossless.transport.redis_outage import advise_redis_error

#: Seconds to wait for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0

Found = TypeVar("Found")


@dataclass
class StatusSources:
    """The facts that were found so far, and why others are missing.

    Attributes:
        silent: the servers that do not answer, a sentence each.
        unknown: the facts that are unknown although every server answers, a sentence each.
        has_ledger: whether the ledger has answered.
        bootstrap: Kafka's bootstrap servers, for people.
        broker: where the Celery broker is, for people; the same words as the ledger's if that is the same Redis.
        limits: the state of the limits that handlers share.
        terms: their numbers in force, as options, and the handlers that share each.
    """

    facts: GroupFacts
    extents: list[Extent] | None = None
    knows_parked: bool = False
    mirrored: MirroredDecisions = NO_DECISIONS
    policies: Mapping[str, PolicyData] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    limits: Mapping[str, LimitStatus] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    has_ledger: bool = False
    bootstrap: str = ""
    broker: str = ""

    def ask(self, question: Callable[[], Found]) -> Found | None:
        """Return the answer of a server; `None` if it does not answer, which is noted."""
        try:
            return question()
        except KafkaUnavailable as error:
            why = f"{error} Until then nothing new is read."
            if not login_errors.explains(str(error)):
                place = f"KAFKA_BOOTSTRAP_SERVERS ({self.bootstrap})"
                why = f"{error} Start it, or fix the network or {place}: until then nothing new is read."
        except LedgerUnavailable as error:
            why = str(error)
        except HandoffFailed as error:
            if str(error).startswith("OutOfMemoryError"):
                self.note_full(self.broker)
                return None
            words = str(error).rstrip(".")
            if advice := advise_redis_error(error):
                why = f"The Celery broker ({self.broker}) answers, but refuses: {advice} ({words})."
            else:
                why = "The Celery broker does not answer: " + (
                    explain_refused_login(words, "CELERY_BROKER_URL")
                    or f"{words}. Start it, or fix the network or CELERY_BROKER_URL."
                )
        self.note_silent(why)
        return None

    def note_silent(self, why: str) -> None:
        """Note once why a server does not answer."""
        if why not in self.silent:
            self.silent.append(why)

    def note_full(self, where: str, unlisted: str = "") -> None:
        """Note that a Redis answers, and refuses writes because it is full.

        Parameters:
            unlisted: which bridges and workers may run unlisted therefore.
        """
        memory = {each.where: each for each in self.facts.memory}
        known = memory.get(where, RedisMemory(where))
        memory[where] = replace(known, refuses=True, unlisted=unlisted or known.unlisted)
        self.facts = replace(self.facts, memory=tuple(memory.values()))


def gather_facts(app: Celery, settings: Settings, routes: Routes) -> StatusSources:
    """Return the facts of the group from Redis and the broker."""
    handlers = tuple(HandlerFacts(h.name, h.topics, h.queue, h.longest_wait, h.aliases) for h in routes)
    facts = GroupFacts(time.time(), settings.group, handlers, app=settings.app)
    sources = StatusSources(facts, bootstrap=hide_password(settings.kafka.get("bootstrap.servers", "")))
    mute: str | None = None
    sources.broker = hide_password(str(app.conf.broker_url))
    if (found := Ledger.once(settings, ANSWER_WITHIN)) is not None:
        sources.broker = found.where if settings.one_redis else sources.broker
        with closing(found) as ledger:
            members = sources.ask(lambda: _read_members(sources.facts, ledger))
            if members is not None:
                sources.facts, sources.mirrored, mute = members
                sources.has_ledger = True
                sources.facts = sources.ask(lambda: _read_breakers(sources.facts, ledger, routes)) or sources.facts
                sources.facts = sources.ask(lambda: _read_counts(sources.facts, ledger)) or sources.facts
                sources.limits = sources.ask(lambda: LimitLedger(ledger).read(sorted(routes.limits))) or {}
        sources = add_decisions(sources, app, routes, sources.mirrored.in_force())
    # A Redis that is frozen costs seconds for each request: the same one is not asked again.
    if not (settings.one_redis and sources.silent):
        _ask_broker(sources, app, routes)
    if mute and found is not None and _is_full(sources.facts, found.where, mute):
        sources.note_full(found.where, _unconfirmed(sources.facts))
    elif mute:
        sources.note_silent(
            f"Redis takes no announcements of bridges and workers ({mute}): those that are not listed may run"
            f"{_unconfirmed(sources.facts)}. Let Redis write again: until then nothing is handed off or marked."
        )
    return sources


def _is_full(facts: GroupFacts, where: str, refusal: str) -> bool:
    return "maxmemory" in refusal or any(redis.full for redis in facts.memory if redis.where == where)


def _unconfirmed(facts: GroupFacts) -> str:
    """Return the unconfirmed members: `; not confirmed: bridge a, worker b (the last announced itself …)`."""
    names = [f"{kind[:-1]} {name}" for kind, members in facts.unconfirmed.items() for name in members]
    if not names:
        return ""
    times = [at for members in facts.unconfirmed.values() for at in members.values() if at is not None]
    last = f" (the last announced itself {format_utc(max(times))})" if times else ""
    return f"; not confirmed: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}{last}"


class _Members(NamedTuple):
    """The running members of the group, as Redis has them.

    Attributes:
        facts: the known facts, with those of the members.
        mute: why others may run unlisted; empty: none does.
    """

    facts: GroupFacts
    mirrored: MirroredDecisions
    mute: str


def _read_members(known: GroupFacts, ledger: Ledger) -> _Members:
    """Return the running members, and the decisions that Redis has."""
    bridges, workers = GroupMembers(ledger, "bridges"), GroupMembers(ledger, "workers")
    there, working = bridges.living(), workers.living()
    facts = replace(
        known,
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
    # Redis does not know when a single member announced itself last, once its announcement has expired.
    unconfirmed = {
        "bridges": dict.fromkeys(bridges.unconfirmed, max(here.values(), default=None)),
        "workers": dict.fromkeys(workers.unconfirmed, max(at_work.values(), default=None)),
    }
    mirrored = DecisionMirror(ledger).read()
    facts = replace(facts, oldest=ages, memory=memory, seen=seen, lost=bridges.lost(), unconfirmed=unconfirmed)
    return _Members(facts, mirrored, bridges.mute or workers.mute)


def add_decisions(
    sources: StatusSources, app: Celery, routes: Routes, decisions: Mapping[str, GroupDecision]
) -> StatusSources:
    """Return the sources with the decisions for the group."""
    # A changed policy that is not in force is a problem.
    changed = find_changed_policies(decisions)
    policies = {name: data for name, data in changed.items() if find_policy_fault(app, routes, name, data) is None}
    stale = tuple(find_stale_policies(app, routes, decisions))
    handler_halts = _keep_aside(sources.facts, find_small_halts(decisions))
    facts = replace(sources.facts, halts=find_halts(decisions), handler_halts=handler_halts, stale=stale)
    terms = {
        name: {
            **make_policy_view(app, routes, limit_subject(name), changed.get(limit_subject(name)))["policy"],
            "handlers": [h.name for h in routes if h.limit is not None and h.limit.name == name],
        }
        for name in routes.limits
    }
    return replace(sources, policies=policies, facts=facts, terms=terms)


def _keep_aside(facts: GroupFacts, halts: SmallHalts) -> tuple[HandlerHalt, ...]:
    """Return the halted handlers and keys, with what is known to wait for each."""
    aside = {each.scope: each.aside for each in facts.handler_halts}
    return tuple(HandlerHalt(scope, halt, aside.get(scope, NONE_ASIDE)) for scope, halt in halts.items())


def _read_breakers(facts: GroupFacts, ledger: Ledger, routes: Routes) -> GroupFacts:
    if not routes.terms:
        return facts
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
    return replace(facts, breakers=tuple(found))


def _read_counts(facts: GroupFacts, ledger: Ledger) -> GroupFacts:
    whose = [(topic, handler.name) for handler in facts.handlers for topic in handler.topics]
    now, names = facts.now, [handler.name for handler in facts.handlers]
    return replace(
        facts,
        counts=read_counts(ledger, whose, now),
        outcomes=read_outcomes(ledger, whose, now),
        unpublished=read_unpublished(ledger, names, now),
        costs=_costs(facts),
    )


def _costs(facts: GroupFacts) -> dict[str, float]:
    """Return the seconds that a delivery of each handler takes, as bridges announce it."""
    answers = (state.get("costs") for state in (facts.bridges or {}).values())
    costs = next((answer for answer in answers if isinstance(answer, Mapping)), {})
    return {name: float(cost) for name, cost in costs.items() if isinstance(cost, int | float)}


def _waiting(group: str, aside: Mapping[str, SetAside]) -> dict[str, SetAside]:
    """Return by dependency of a group what its gate has set aside."""
    sums: dict[str, SetAside] = {}
    for gate, count in aside.items():
        if (dependency := gated_dependency(group, gate)) is not None:
            sums[dependency] = sums.get(dependency, NONE_ASIDE).plus(count)
    return sums


def _ask_broker(sources: StatusSources, app: Celery, routes: Routes) -> None:
    """Ask the Celery broker for its queues; a full Redis gives their lengths, and not all that follows."""
    with closing(CeleryBroker(app)) as broker:
        for read in (_read_queue_lengths, _read_waiting_messages, _read_unconsumed_queues):
            facts = sources.ask(partial(read, sources.facts, broker, routes))
            if facts is None:
                return
            sources.facts = facts


def _read_queue_lengths(facts: GroupFacts, broker: CeleryBroker, routes: Routes) -> GroupFacts:
    return replace(facts, queues=broker.read_lengths(routes.queues))


def _read_waiting_messages(facts: GroupFacts, broker: CeleryBroker, routes: Routes) -> GroupFacts:
    failing, retries = tuple(BrokerSearch(broker).failing(routes.queues)), broker.count_delayed(routes.queues)
    aside = count_set_aside(broker)
    waiting = _waiting(facts.group, aside)
    return replace(
        facts,
        failing=failing,
        retries=retries,
        breakers=tuple(
            replace(breaker, aside=waiting.get(breaker.dependency, NONE_ASIDE)) for breaker in facts.breakers
        ),
        aside={topic: aside.get(topic_gate(facts.group, topic), NONE_ASIDE) for topic in routes.topics},
        handler_halts=tuple(
            replace(each, aside=aside.get(held_gate(facts.group, each.scope), NONE_ASIDE))
            for each in facts.handler_halts
        ),
        unnamed={name: count for name, count in waiting.items() if count.messages and name not in routes.terms},
    )


def _read_unconsumed_queues(facts: GroupFacts, broker: CeleryBroker, routes: Routes) -> GroupFacts:
    """Return the facts with the backlog of queues without workers, in deliveries: a message of a batch has many."""
    lengths = facts.queues or {}
    idle = {queue: lengths[queue] + facts.retries.get(queue, 0) for queue in find_unconsumed_queues(facts)}
    read = [queue for queue, count in idle.items() if 0 < count <= WAITING_READ]
    return replace(facts, deliveries=BrokerSearch(broker).deliveries(read))
