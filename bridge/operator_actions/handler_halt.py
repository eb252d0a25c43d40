"""`bridge halt TOPIC --handler HANDLER [--key KEY]` and its `bridge resume`: halts that are smaller than a topic.

The decisions are as durable as those on topics (topic_halt.py), and made likewise.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from celery import Celery

from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HaltRefused, UnknownHandler
from bridge.formats import group_decision
from bridge.formats.gate_names import held_gate
from bridge.formats.group_decision import GroupDecision
from bridge.formats.halt_scope import HaltScope, find_small_halts
from bridge.formats.text_forms import parse_octets
from bridge.handler_routes import Routes
from bridge.ledger.group_access import open_decisions
from bridge.operator_actions.topic_halt import (
    do_others_run,
    find_halts,
    list_still_halted,
    make_halt_view,
    make_outcome_data,
    move_gate,
    refuse_unknown,
)
from bridge.settings import Settings


def halt_handlers(
    app: Celery, settings: Settings, routes: Routes, scopes: Sequence[HaltScope], why: str, by: str
) -> dict[str, Any]:
    """Halt handlers, or keys of handlers, until a person resumes them; a halted one gets this reason.

    Returns:
        `topics`: empty; `handlers`: the state of each, and whether Kafka and Redis have the decision.

    Raises:
        UnknownTopic, UnknownHandler: there is no such topic, or no such handler of it; nothing was decided.
        HaltRefused: it cannot be halted so; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    for scope in scopes:
        _require_haltable(settings, routes, scope)
    found = []
    with open_decisions(settings) as group, closing(CeleryBroker(app)) as broker:
        for scope in scopes:
            data = group_decision.make_halt_data(group.standing.get(scope.decision_key), time.time())
            outcome = group.decide(scope.decision_key, data, by, why)
            move_gate(broker, held_gate(settings.group, scope), why)
            found.append((scope, make_outcome_data(outcome)))
        topics, halted = find_halts(group.standing), {*find_small_halts(group.standing), *scopes}
    handlers = [
        {**scope.data, **outcome, "others_run": do_others_run(routes, halted, topics, scope)}
        for scope, outcome in found
    ]
    return {"topics": {}, "handlers": handlers}


def resume_handlers(
    app: Celery, settings: Settings, routes: Routes, scopes: Sequence[HaltScope] | None, why: str, by: str
) -> dict[str, Any]:
    """Resume halted handlers or keys where they stopped; one that is not halted stays as it is.

    Parameters:
        scopes: `None`: all that are halted.

    Returns:
        as `halt_handlers`; behind these the other halts of their topics, and in `topics` those of the whole topics.

    Raises:
        UnknownTopic, UnknownHandler: there is no such topic or handler, and it is not halted; nothing was decided.
        NotDecided: neither Kafka nor Redis has it.
    """
    found = []
    with open_decisions(settings) as group, closing(CeleryBroker(app)) as broker:
        halted, names = find_small_halts(group.standing), routes.current_names
        asked = [*halted] if scopes is None else add_former_names(scopes, halted, names)
        for scope in asked:
            if scope not in halted:
                _require_handler(routes, scope)
        for scope in asked:
            if scope not in halted and not group.may_differ(scope.decision_key):
                found.append({**scope.data, "halted": False, "changed": False})
                continue
            outcome = group.decide(scope.decision_key, None, by, why)
            move_gate(broker, held_gate(settings.group, scope), None)
            found.append(scope.data | make_outcome_data(outcome))
        if scopes is None:
            return {"topics": {}, "handlers": found}
        left = {scope: decision for scope, decision in halted.items() if scope not in asked}
        topics, halts = {scope.topic for scope in scopes}, find_halts(group.standing)
    whole = {
        topic: {"halted": True, "changed": False, **make_halt_view(halt)}
        for topic, halt in halts.items()
        if topic in topics
    }
    return {"topics": whole, "handlers": [*found, *list_still_halted(routes, left, topics, halts)]}


def add_former_names(
    scopes: Iterable[HaltScope], halted: Collection[HaltScope], names: Mapping[str, str]
) -> list[HaltScope]:
    """Return the scopes to resume: in place of one that is not halted, those that were under a former name (pure)."""
    found = []
    for scope in scopes:
        former = [each for each in halted if each != scope and each.under_current_name(names) == scope]
        found += [*([scope] if scope in halted or not former else []), *former]
    return found


def read_handler_halts(settings: Settings, topic: str | None = None) -> list[dict[str, Any]]:
    """Return the halted handlers and keys of a topic, or of all, each as in `make_handler_halt_view`.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """
    with open_decisions(settings) as group:
        halts = find_small_halts(group.standing)
    return [make_handler_halt_view(*each) for each in halts.items() if topic in (None, each[0].topic)]


def make_handler_halt_view(scope: HaltScope, decision: GroupDecision) -> dict[str, Any]:
    """Return the halt of a handler or key as JSON: `topic`, `handler`, `key` (or null), why, since when, by whom."""
    view = make_halt_view(decision)
    return scope.data | {name: view[name] for name in ("why", "since", "by")}


def is_halt_of(view: Mapping[str, Any], scope: HaltScope) -> bool:
    """Return whether the halt of a handler or key as JSON is of this one."""
    return {name: view[name] for name in ("topic", "handler", "key")} == scope.data


def describe_halt_subject(scope: HaltScope) -> str:
    """Return words for a handler or key in the audit log, which may not have keys."""
    handler = f"handler {scope.handler} of {scope.topic}"
    return handler if scope.key is None else f"a key of {handler}"


def make_scopes(topics: Iterable[str], handler: str, key: str | None) -> list[HaltScope]:
    """Return the scope of a handler, or of its key, on each topic.

    Raises:
        HaltRefused: as `read_scope`.
    """
    return [read_scope(topic, handler, key) for topic in topics]


def read_scope(topic: str, handler: str, key: str | None) -> HaltScope:
    """Return the scope of a handler, or of its key, which is written as for the option `--key`.

    Raises:
        HaltRefused: the key is malformed.
    """
    try:
        octets = None if key is None else parse_octets(key, "key")
    except ValueError as error:
        raise HaltRefused(str(error)) from None
    return HaltScope(topic, handler, None if octets is None else octets.decode("utf-8", "surrogateescape"))


def _require_haltable(settings: Settings, routes: Routes, scope: HaltScope) -> None:
    _require_handler(routes, scope)
    if scope.key is not None and settings.topic(scope.topic).order == "partition":
        raise HaltRefused(
            f"topic {scope.topic!r} is ordered by partition: a halted key would stop all that is behind it. Halt its "
            f"handler instead: bridge halt {HaltScope(scope.topic, scope.handler).arguments}"
        )


def _require_handler(routes: Routes, scope: HaltScope) -> None:
    refuse_unknown([scope.topic], routes.topics)
    names = [handler.name for handler in routes.of(scope.topic)]
    if scope.handler not in names:
        raise UnknownHandler(
            f"{scope.handler!r} is no handler of topic {scope.topic!r}. Its handlers: {', '.join(sorted(names))}."
        )
