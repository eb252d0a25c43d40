"""`bridge policy`: each handler's policy in force, and changes of it without a deployment."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from celery import Celery

from bridge.errors import BridgeError, KafkaUnavailable, NotDecided, PolicyRefused, UnknownHandler
from bridge.formats.group_decision import (
    GroupDecision,
    PolicyData,
    find_changed_policies,
    limit_subject,
    list_policy_changes,
    policy_key,
    read_changed_options,
    read_option_values,
    set_policy_options,
    summarize_policy_changes,
    unset_policy_options,
)
from bridge.formats.text_forms import format_time
from bridge.handler_routes import Handler, Routes, apply_waits
from bridge.kafka.managed_topic import list_needed_tiers
from bridge.kafka.retry_topics import RetryTopics
from bridge.kafka.topic_names import TopicNames
from bridge.ledger.decision_store import DecisionOutcome
from bridge.ledger.group_access import DecisionsInForce, open_decisions
from bridge.problems.bridge_problem_rows import POLICY_NOT_IN_FORCE
from bridge.problems.problem import Problem, make_problem
from bridge.settings import Settings


def read_policies(app: Celery, settings: Settings, routes: Routes, handler: str | None = None) -> dict[str, Any]:
    """Return each handler's policy, or that of one.

    Returns:
        by handler `policy`: by option, what is in force; `changed`: by option `was` (what the code says), `is`, `by`,
        `at` and `why`; `fault`: why what was changed is not in force, or `None`.

    Raises:
        UnknownHandler: no handler has the name, and nothing was changed under it.
        NotDecided: neither Kafka nor Redis can be asked.
    """
    if handler is not None:
        return {handler: read_policy(app, settings, routes, handler)[0]}
    known = find_changed_policies(_read_decisions(settings))
    return {
        name: make_policy_view(app, routes, name, known.get(name)) for name in sorted({*_list_subjects(routes), *known})
    }


def read_policy(
    app: Celery, settings: Settings, routes: Routes, handler: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a handler's policy as `read_policies`, and its changes as `read_policy_history`, both of one moment.

    Raises:
        UnknownHandler: no handler has the name, and nothing was changed under it.
        NotDecided: neither Kafka nor Redis can be asked.
    """
    if not handler.isprintable():
        # Only Kafka knows whether a printable name once had a change.
        _refuse_unknown(handler, _list_subjects(routes))
    standing = _read_decisions(settings)
    known = find_changed_policies(standing)
    _refuse_unknown(handler, {*_list_subjects(routes), *known})
    return make_policy_view(app, routes, handler, known.get(handler)), _steps(standing.get(policy_key(handler)))


def set_policy(
    app: Celery, settings: Settings, routes: Routes, handler: str, words: Sequence[str], why: str, by: str
) -> dict[str, Any]:
    """Change options of a handler's policy, for all workers of the group.

    Parameters:
        words: `option=value` each.

    Returns:
        the handler as in `read_policies`, with `unpublished` and `unmirrored`: why Kafka or Redis does not have it
        yet, or `None`; `tiers`: retry topics that longer waits need and that are not there, with why.

    Raises:
        UnknownHandler: no handler has the name.
        PolicyRefused: an option or its value cannot be set, or there is no Redis by which workers would hear of it.
        NotDecided: what was changed before is not known, and would be lost.
            Or neither Kafka nor Redis has it.
    """
    _refuse_unknown(handler, _list_subjects(routes))
    if settings.ledger_url is None:
        raise PolicyRefused(
            "workers read changes from the ledger, and there is none, because the broker is no Redis: set LEDGER_URL."
        )
    changing = _find_declared(app, routes, handler).changing
    with open_decisions(settings) as group:
        _require_complete(group)
        before = _data(group, handler)
        try:
            after = set_policy_options(before, changing.read(words), by, time.time(), why)
            policy = changing.policy(read_option_values(after))
        except BridgeError as error:
            raise PolicyRefused(str(error)) from None
        # The topic must exist before the first longer wait.
        tiers = _tiers(settings, routes.handlers[handler], policy) if handler in routes.handlers else {}
        outcome = group.decide(policy_key(handler), after, by, why)
    return _outcome_data(app, routes, handler, outcome) | {"tiers": tiers}


def unset_policy(
    app: Celery, settings: Settings, routes: Routes, handler: str, options: Collection[str], why: str, by: str
) -> dict[str, Any]:
    """Go back to what the code says, for some options or for all; what is not changed stays as it is.

    Returns:
        as `set_policy`.

    Raises:
        UnknownHandler: no handler has the name, and nothing was changed under it.
        PolicyRefused: there is no such option, or what is left could not be in force without it.
        NotDecided: what was changed before is not known, and some of it is to stay. Or neither Kafka nor Redis has it.
    """
    with open_decisions(settings) as group:
        if options:
            _require_complete(group)
        known = find_changed_policies(group.standing)
        _refuse_unknown(handler, {*_list_subjects(routes), *known})
        before = _data(group, handler)
        after = unset_policy_options(before, options) if options else None
        _refuse_rest(app, routes, handler, options, before, after)
        # If some decisions are unknown, or Kafka has an earlier one, there may be changes to undo.
        may_differ = group.unknown or group.may_differ(policy_key(handler))
        if read_option_values(before) == read_option_values(after) and not may_differ:
            return make_policy_view(app, routes, handler, before) | {
                "unpublished": None,
                "unmirrored": None,
                "tiers": {},
            }
        outcome = group.decide(policy_key(handler), after, by, why)
    return _outcome_data(app, routes, handler, outcome) | {"tiers": {}}


def read_policy_history(settings: Settings, routes: Routes, handler: str) -> list[dict[str, Any]]:
    """Return a policy's changes, the latest first: `at`, `by`, `why`, `set` (by option its value), `unset`.

    Raises:
        UnknownHandler: no handler has the name, and nothing was changed under it.
        NotDecided: neither Kafka nor Redis can be asked.
    """
    decision = _read_decisions(settings).get(policy_key(handler))
    if decision is None:
        _refuse_unknown(handler, _list_subjects(routes))
    return _steps(decision)


def _read_decisions(settings: Settings) -> Mapping[str, GroupDecision]:
    """Return the decisions of the group. Raises NotDecided: neither Kafka nor Redis can be asked."""
    with open_decisions(settings) as group:
        _require_known(group)
        return group.standing


def _steps(decision: GroupDecision | None) -> list[dict[str, Any]]:
    return [
        {"at": format_time(step.at), "by": step.by, "why": step.why, "set": dict(step.set), "unset": list(step.unset)}
        for step in list_policy_changes(decision)
    ]


def find_stale_policies(app: Celery, routes: Routes, standing: Mapping[str, GroupDecision]) -> Iterator[Problem]:
    """Yield a problem for each changed policy that is not in force."""
    for name, data in find_changed_policies(standing).items():
        if fault := find_policy_fault(app, routes, name, data):
            yield make_problem(POLICY_NOT_IN_FORCE, handler=name, changes=summarize_policy_changes(data), fault=fault)


def find_policy_fault(app: Celery, routes: Routes, name: str, data: PolicyData) -> str | None:
    """Return why a handler's changed policy is not in force; `None` if it is."""
    if name not in _list_subjects(routes):
        return f"no handler or limit has this name. `bridge policy unset {name}` removes the change."
    try:
        _find_declared(app, routes, name).changing.policy(read_option_values(data))
    except BridgeError as error:
        return f"{error} Set it again, or `bridge policy unset {name}`."
    return None


def make_policy_view(app: Celery, routes: Routes, name: str, data: PolicyData) -> dict[str, Any]:
    """Return one handler as in `read_policies`."""
    fault = find_policy_fault(app, routes, name, data)
    code: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    if name in _list_subjects(routes):
        changing, declared = _find_declared(app, routes, name)
        code = changing.shown(declared)
        policy = code if fault else changing.shown(changing.policy(read_option_values(data)))
    changed = {
        option: {
            "was": code.get(option),
            "is": change.value,
            "by": change.by,
            "at": format_time(change.at),
            "why": change.why,
        }
        for option, change in read_changed_options(data).items()
    }
    return {"policy": policy, "changed": changed, "fault": fault}


class _Declared(NamedTuple):
    """The policy of a handler, or the numbers of a limit, in the code.

    Attributes:
        changing: reads and checks what is changed.
        policy: without changes.
    """

    changing: Any
    policy: Any


def _list_subjects(routes: Routes) -> set[str]:
    """Return the names of which something may be changed: handlers, and limits (`limit:bank`)."""
    return {*routes.handlers, *map(limit_subject, routes.limits)}


def _find_declared(app: Celery, routes: Routes, name: str) -> _Declared:
    for limit_name, limit in routes.limits.items():
        if name == limit_subject(limit_name):
            return _Declared(limit.changing, limit.terms)
    task: Any = app.tasks[name]
    return _Declared(task.changing, task.policy)


def _outcome_data(app: Celery, routes: Routes, handler: str, outcome: DecisionOutcome) -> dict[str, Any]:
    return {
        **make_policy_view(app, routes, handler, outcome.decision.data),
        "unpublished": outcome.unpublished or None,
        "unmirrored": outcome.unmirrored or None,
    }


def _data(group: DecisionsInForce, handler: str) -> PolicyData:
    decision = group.standing.get(policy_key(handler))
    return None if decision is None else decision.data


def _require_known(group: DecisionsInForce) -> None:
    """Raise NotDecided if Kafka is unavailable and may have decisions that Redis does not know."""
    if group.unread and group.unknown:
        raise NotDecided(f"the changes are not known: {group.unknown}")


def _require_complete(group: DecisionsInForce) -> None:
    """Raise NotDecided if earlier changes are unknown: a new decision would replace them."""
    if group.unknown:
        raise NotDecided(f"nothing was changed, because earlier changes are not known: {group.unknown}")


def _tiers(settings: Settings, handler: Handler, policy: Any) -> dict[str, str]:
    """Create the retry topics that a policy needs; return those that are missing, with why."""
    wanting = apply_waits(handler, policy)
    routes, topics, names = Routes({handler.name: wanting}), RetryTopics(settings), TopicNames.from_settings(settings)
    missing = {}
    for topic in handler.topics:
        for delay in list_needed_tiers(settings, routes, topic):
            try:
                fault = topics.fault(topic, delay, settings.group)
            except KafkaUnavailable as error:
                fault = str(error)
            if fault is not None:
                missing[names.retry(topic, delay)] = fault
    return missing


def _refuse_rest(
    app: Celery, routes: Routes, handler: str, options: Collection[str], before: PolicyData, after: PolicyData
) -> None:
    """Raise PolicyRefused if the remaining changes could not be in force, and those before were."""
    if handler not in _list_subjects(routes) or not options:
        return
    changing = _find_declared(app, routes, handler).changing
    for option in options:
        if option not in read_option_values(before):
            try:
                changing.check_option(option)
            except BridgeError as error:
                raise PolicyRefused(str(error)) from None
    if find_policy_fault(app, routes, handler, before) is not None:
        return
    try:
        changing.policy(read_option_values(after))
    except BridgeError as error:
        raise PolicyRefused(f"the remaining changes could not be in force: {error} Unset them as well.") from None


def _refuse_unknown(handler: str, known: Collection[str]) -> None:
    if handler in known:
        return
    last = {name.rpartition(".")[2]: name for name in sorted(known)}
    near = get_close_matches(handler, sorted(known), 1) or [
        last[name] for name in get_close_matches(handler.rpartition(".")[2], last, 1)
    ]
    meant = f"did you mean {near[0]!r}?" if near else f"handlers: {', '.join(sorted(known)) or 'none'}."
    raise UnknownHandler(f"no handler has the name {handler!r}: {meant}")
