"""`bridge halt` and `bridge resume`: through Kafka and Redis; no bridge or worker need be reachable."""

import getpass
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final

from celery import Celery

from bridge.errors import HandoffFailed, UnknownTopic
from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.ledger import Ledger
from bridge.ledger.control import Mirror
from bridge.ledger.deciding import Outcome, decide, standing
from bridge.records import control
from bridge.records.control import Decision, halt_key, halted_topic
from bridge.records.gates import topic_gate
from bridge.settings import Settings
from bridge.upkeep.facts import iso

#: Seconds for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0


def halt(app: Celery, settings: Settings, routes: Routes, topics: Sequence[str], why: str, by: str) -> dict[str, Any]:
    """Stop the consumption of topics until a person resumes it; one that is halted already is, for this reason now.

    Returns:
        `topics`: by topic, how it stands and what became of the decision.

    Raises:
        UnknownTopic: no handler names one of them; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    with closing(_Group(app, settings)) as group:
        known = group.standing()
        _refuse_unknown(topics, routes.topics)
        found = {}
        for topic in topics:
            before = known.get(halt_key(topic))
            found[topic] = _told(group.decide(topic, control.halt(before, time.time()), by, why, before))
        return {"topics": found}


def resume(
    app: Celery, settings: Settings, routes: Routes, topics: Sequence[str] | None, why: str, by: str
) -> dict[str, Any]:
    """Go on with topics, from exactly where they stood; one that is not halted stays as it is.

    Parameters:
        topics: `None`: all that are halted.

    Returns:
        as `halt`.

    Raises:
        UnknownTopic: no handler names one of them, and it is not halted; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    with closing(_Group(app, settings)) as group:
        known = group.standing()
        halted = halts(known)
        _refuse_unknown(topics or (), {*routes.topics, *halted})
        found = {}
        for topic in sorted(halted) if topics is None else topics:
            before = known.get(halt_key(topic))
            if topic in halted:
                found[topic] = _told(group.decide(topic, None, by, why, before))
            else:
                found[topic] = {"halted": False, "changed": False}
        return {"topics": found}


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


class _Group:
    """What was decided for the group of the settings."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._settings, self._broker = settings, Broker(app)
        url, named = settings.ledger_url, settings.ledger_named
        self._ledger = Ledger(url, "", settings.group, timeout=ANSWER_WITHIN, named=named) if url else None
        self._mirror = Mirror(self._ledger) if self._ledger else None

    def standing(self) -> dict[str, Decision]:
        return standing(self._settings, self._mirror)

    def decide(self, topic: str, data: Mapping[str, Any] | None, by: str, why: str, before: Decision | None) -> Outcome:
        outcome = decide(self._settings, self._mirror, halt_key(topic), data, by, why, before)
        self._move_gate(topic, None if data is None else why)
        return outcome

    def _move_gate(self, topic: str, why: str | None) -> None:
        """Last of all; a bridge brings it in order where the broker does not answer."""
        name = topic_gate(self._settings.group, topic)
        with suppress(HandoffFailed), self._broker.gates() as gates:
            if gates is not None and why is None:
                gates.open(name)
            elif gates is not None:
                gates.shut(name, why or "")

    def close(self) -> None:
        self._broker.close()
        if self._ledger is not None:
            self._ledger.close()


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
