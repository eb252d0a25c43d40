"""`bridge halt` and `bridge resume`: they write a decision to Kafka and Redis, without a running bridge or worker.

A handler halts its own topic in tasks/execution/halt_gate.py. Halts of a handler or a key are in handler_halt.py.
"""

import getpass
import os
import socket
import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from celery import Celery

from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, UnknownTopic
from bridge.formats import group_decision
from bridge.formats.gate_names import topic_gate
from bridge.formats.group_decision import GroupDecision, halt_key, halted_topic
from bridge.formats.halt_scope import HaltScope, SmallHalts, find_small_halts
from bridge.formats.text_forms import format_time
from bridge.handler_routes import Routes
from bridge.ledger.decision_store import DecisionOutcome
from bridge.ledger.group_access import open_decisions
from bridge.settings import Settings


def halt_topics(
    app: Celery, settings: Settings, routes: Routes, topics: Sequence[str], why: str, by: str
) -> dict[str, Any]:
    """Halt topics until a person resumes them; a topic that is halted already gets this reason.

    Returns:
        `topics`: by topic, its state, and whether Kafka and Redis have the decision.

    Raises:
        UnknownTopic: no handler names one of them; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    with open_decisions(settings) as group, closing(CeleryBroker(app)) as broker:
        refuse_unknown(topics, routes.topics)
        outcomes = {}
        for topic in topics:
            data = group_decision.make_halt_data(group.standing.get(halt_key(topic)), time.time())
            outcome = group.decide(halt_key(topic), data, by, why)
            move_gate(broker, topic_gate(settings.group, topic), why)
            outcomes[topic] = make_outcome_data(outcome)
        return {"topics": outcomes}


def resume_topics(
    app: Celery, settings: Settings, routes: Routes, topics: Sequence[str] | None, why: str, by: str
) -> dict[str, Any]:
    """Resume topics exactly where they stopped; a topic that is not halted stays as it is.

    Kafka may have a halt that is unknown while it does not respond, or that Redis alone has as withdrawn: then topics
    without a known halt are resumed, too.

    Parameters:
        topics: `None`: all that are halted, or may be.

    Returns:
        as `halt_topics`; `handlers`: the handlers and keys of these topics that stay halted.

    Raises:
        UnknownTopic: no handler names one of them, and it is not halted; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    with open_decisions(settings) as group, closing(CeleryBroker(app)) as broker:
        halted = find_halts(group.standing)
        refuse_unknown(topics or (), {*routes.topics, *halted})
        maybe_halted = {*halted, *(topic for topic in routes.topics if group.may_differ(halt_key(topic)))}
        outcomes = {}
        for topic in sorted(maybe_halted) if topics is None else topics:
            if topic not in halted and not group.may_differ(halt_key(topic)):
                outcomes[topic] = {"halted": False, "changed": False}
                continue
            outcome = group.decide(halt_key(topic), None, by, why)
            move_gate(broker, topic_gate(settings.group, topic), None)
            outcomes[topic] = make_outcome_data(outcome)
        small, still = find_small_halts(group.standing), halted.keys() - outcomes.keys()
        return {"topics": outcomes, "handlers": list_still_halted(routes, small, outcomes, still)}


def list_still_halted(
    routes: Routes, halts: SmallHalts, topics: Container[str], halted_topics: Container[str]
) -> list[dict[str, Any]]:
    """Return the halted handlers and keys of some topics as JSON, each as after a decision that left it halted (pure).

    Parameters:
        topics: whose.
        halted_topics: the topics that are halted as a whole.
    """
    return [
        {
            **scope.data,
            "halted": True,
            "changed": False,
            **make_halt_view(decision),
            "others_run": do_others_run(routes, halts, halted_topics, scope),
        }
        for scope, decision in halts.items()
        if scope.topic in topics
    ]


def do_others_run(routes: Routes, halts: Iterable[HaltScope], halted_topics: Container[str], scope: HaltScope) -> bool:
    """Return whether other deliveries of the topic than those of a halted handler or key run (pure).

    Parameters:
        halts: the halted handlers and keys.
        halted_topics: the topics that are halted as a whole.
    """
    if scope.topic in halted_topics:
        return False
    names = routes.current_names
    halted = {each.under_current_name(names) for each in halts}
    running = [handler.name for handler in routes.of(scope.topic) if HaltScope(scope.topic, handler.name) not in halted]
    return any(name != scope.under_current_name(names).handler or scope.key is not None for name in running)


def read_halts(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the halted topics, each as in `make_halt_view`.

    Raises:
        NotDecided: neither Kafka nor Redis responds.
    """
    with open_decisions(settings) as group:
        return {topic: make_halt_view(decision) for topic, decision in find_halts(group.standing).items()}


def read_halt_history(settings: Settings, topic: str) -> list[dict[str, Any]]:
    """Return the halts and resumes of a topic, the latest first: `halted`, `by`, `at`, `why`; also `handler`.

    Raises:
        NotDecided: neither Kafka nor Redis responds.
    """
    with open_decisions(settings) as group:
        decision = group.standing.get(halt_key(topic))
    changes = [] if decision is None else [decision.change, *decision.history]
    return [
        {"halted": change.data is not None, "by": change.by, "at": format_time(change.at), "why": change.why}
        | {name: value for name, value in (change.data or {}).items() if name == "handler"}
        for change in changes
    ]


def find_halts(decisions: Mapping[str, GroupDecision]) -> dict[str, GroupDecision]:
    """Return the decisions that halt a topic, by topic."""
    return {
        topic: decision
        for key, decision in sorted(decisions.items())
        if decision.data is not None and (topic := halted_topic(key)) is not None
    }


def make_halt_view(decision: GroupDecision) -> dict[str, Any]:
    """Return a halt as JSON-compatible data: `why`, `since`, `by`; of a handler also `handler`, `record`, `error`."""
    cause = {name: value for name, value in (decision.data or {}).items() if name != "since"}
    return {"why": decision.why, "since": format_time(decision.since), "by": decision.by, **cause}


def find_person() -> str:
    """Return the user and host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def move_gate(broker: CeleryBroker, name: str, why: str | None) -> None:
    """Open or close a gate in the broker; a bridge does it later if the broker does not answer."""
    with suppress(HandoffFailed), broker.gates() as gates:
        if gates is not None and why is None:
            gates.open(name)
        elif gates is not None:
            gates.shut(name, why or "")


def make_outcome_data(outcome: DecisionOutcome) -> dict[str, Any]:
    """Return the state after a decision as JSON, and whether Kafka and Redis have it."""
    decision = outcome.decision
    how = make_halt_view(decision) if decision.data is not None else {"by": decision.by, "why": decision.why}
    return {
        "halted": decision.data is not None,
        "changed": True,
        **how,
        "unpublished": outcome.unpublished or None,
        "unmirrored": outcome.unmirrored or None,
    }


def refuse_unknown(topics: Collection[str], known: Collection[str]) -> None:
    """Raise UnknownTopic if a topic is not among the known ones."""
    unknown = sorted({*topics} - {*known})
    if unknown:
        raise UnknownTopic(
            f"no handler names {', '.join(map(repr, unknown))}. Topics: {', '.join(sorted(known)) or 'none'}."
        )
