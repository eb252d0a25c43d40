"""`bridge halt` and `bridge resume`: through Kafka and Redis; no bridge or worker need be reachable."""

import getpass
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from celery import Celery

from bridge.commands.decisions import decisions
from bridge.errors import HandoffFailed, UnknownTopic
from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.ledger.deciding import Outcome
from bridge.records import control
from bridge.records.control import Decision, halt_key, halted_topic
from bridge.records.gates import topic_gate
from bridge.records.times import iso
from bridge.settings import Settings


def halt(app: Celery, settings: Settings, routes: Routes, topics: Sequence[str], why: str, by: str) -> dict[str, Any]:
    """Stop the consumption of topics until a person resumes it; one that is halted already is, for this reason now.

    Returns:
        `topics`: by topic, how it stands and what became of the decision.

    Raises:
        UnknownTopic: no handler names one of them; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    with decisions(settings) as group, closing(Broker(app)) as broker:
        _refuse_unknown(topics, routes.topics)
        found = {}
        for topic in topics:
            data = control.halt(group.standing.get(halt_key(topic)), time.time())
            outcome = group.decide(halt_key(topic), data, by, why)
            _move_gate(broker, topic_gate(settings.group, topic), why)
            found[topic] = _told(outcome)
        return {"topics": found}


def resume(
    app: Celery, settings: Settings, routes: Routes, topics: Sequence[str] | None, why: str, by: str
) -> dict[str, Any]:
    """Go on with topics, from exactly where they stood; one that is not halted stays as it is.

    Where Kafka cannot be asked, nobody knows that a topic is not halted: that it goes on is decided all the same.

    Parameters:
        topics: `None`: all that are halted, or may be.

    Returns:
        as `halt`.

    Raises:
        UnknownTopic: no handler names one of them, and it is not halted; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    with decisions(settings) as group, closing(Broker(app)) as broker:
        halted = halts(group.standing)
        _refuse_unknown(topics or (), {*routes.topics, *halted})
        maybe = {*halted, *(routes.topics if group.unread else ())}
        found = {}
        for topic in sorted(maybe) if topics is None else topics:
            if topic not in halted and not group.unread:
                found[topic] = {"halted": False, "changed": False}
                continue
            outcome = group.decide(halt_key(topic), None, by, why)
            _move_gate(broker, topic_gate(settings.group, topic), None)
            found[topic] = _told(outcome)
        return {"topics": found}


def halted(settings: Settings) -> dict[str, dict[str, Any]]:
    """By topic, how it is halted, as `shown` has it; nothing where none is.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """
    with decisions(settings) as group:
        return {topic: shown(decision) for topic, decision in halts(group.standing).items()}


def history(settings: Settings, topic: str) -> list[dict[str, Any]]:
    """Who halted and resumed a topic, from wherever, the latest first: `halted`, `by`, `at`, `why`; also `handler`.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """
    with decisions(settings) as group:
        decision = group.standing.get(halt_key(topic))
    changes = [] if decision is None else [decision.change, *decision.history]
    return [
        {"halted": each.data is not None, "by": each.by, "at": iso(each.at), "why": each.why}
        | {name: said for name, said in (each.data or {}).items() if name == "handler"}
        for each in changes
    ]


def halts(known: Mapping[str, Decision]) -> dict[str, Decision]:
    """By topic, why it is halted."""
    return {
        topic: each
        for key, each in sorted(known.items())
        if each.data is not None and (topic := halted_topic(key)) is not None
    }


def shown(decision: Decision) -> dict[str, Any]:
    """A halt as JSON: why, since when, who, and what caused it (`handler`, `record`, `error`) where a handler did."""
    cause = {name: value for name, value in (decision.data or {}).items() if name != "since"}
    return {"why": decision.why, "since": iso(decision.since), "by": decision.by, **cause}


def who() -> str:
    """The person at this keyboard: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _move_gate(broker: Broker, name: str, why: str | None) -> None:
    """Last of all; a bridge brings it in order where the broker does not answer."""
    with suppress(HandoffFailed), broker.gates() as gates:
        if gates is not None and why is None:
            gates.open(name)
        elif gates is not None:
            gates.shut(name, why or "")


def _told(outcome: Outcome) -> dict[str, Any]:
    decision = outcome.decision
    how = shown(decision) if decision.data is not None else {"by": decision.by, "why": decision.why}
    return {
        "halted": decision.data is not None,
        "changed": True,
        **how,
        "unpublished": outcome.unpublished or None,
        "unmirrored": outcome.unmirrored or None,
    }


def _refuse_unknown(topics: Collection[str], known: Collection[str]) -> None:
    unknown = sorted({*topics} - {*known})
    if unknown:
        raise UnknownTopic(
            f"no handler names {', '.join(map(repr, unknown))}; there is {', '.join(sorted(known)) or 'none'}."
        )
