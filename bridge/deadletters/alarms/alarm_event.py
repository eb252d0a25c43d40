"""The alarms and events of webhooks, each with a sentence for people (pure).

An event has no payload and no error message, because it leaves the network.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bridge.deadletters.inspection.failure_groups import FixedCause, GroupState
from bridge.deadletters.model.bulk_plan import BulkPlan
from bridge.deadletters.model.failure_growth import FailureGrowth
from bridge.deadletters.model.letter_view import format_moment
from bridge.formats.group_decision import GroupDecision
from bridge.formats.halt_scope import HaltScope
from bridge.formats.text_forms import format_count, inflect_verb, make_printable
from bridge.ledger.breaker_state import BreakerStatus

#: Most characters of a name or reason in an event.
LONGEST: Final = 300


class AlarmKind(StrEnum):
    """The kinds of alarms that a webhook can receive."""

    NEW = "new"
    REGRESSION = "regression"
    GROWTH = "growth"
    HALT = "halt"
    BREAKER = "breaker"
    APPROVAL = "approval"
    """A plan awaits a second person."""
    TEST = "test"
    """A test on request, which every webhook receives."""


#: The kinds that a webhook receives by default.
ALL: Final = tuple(about for about in AlarmKind if about is not AlarmKind.TEST)
#: The types of events for the begin and the end of an alarm; an alarm without an end is sent once.
BEGUN: Final[Mapping[AlarmKind, str]] = {
    AlarmKind.NEW: "group.new",
    AlarmKind.REGRESSION: "group.regressed",
    AlarmKind.GROWTH: "group.growing",
    AlarmKind.HALT: "topic.halted",
    AlarmKind.BREAKER: "breaker.opened",
    AlarmKind.APPROVAL: "plan.awaiting",
    AlarmKind.TEST: "webhook.test",
}
ENDED: Final[Mapping[AlarmKind, str]] = {
    AlarmKind.REGRESSION: "group.regression_over",
    AlarmKind.GROWTH: "group.growth_over",
    AlarmKind.HALT: "topic.resumed",
    AlarmKind.BREAKER: "breaker.closed",
    AlarmKind.APPROVAL: "plan.decided",
}


class Alarm(NamedTuple):
    """A condition that should not last.

    Attributes:
        name: of the group of letters (its number, and `/` and a cause), the topic, the dependency, or the plan.
        at: the begin, ms since the epoch.
        data: JSON values.
        whose: the consumer group, if it is one group's alone: several may share a database.
    """

    about: AlarmKind
    name: str
    at: int
    data: Mapping[str, Any]
    whose: str = ""

    @property
    def key(self) -> str:
        """Return the key that pairs its begin and its end: `halt:bridge:orders`."""
        return f"{start_alarm_key(self.about, self.whose)}{self.name}"


def start_alarm_key(about: AlarmKind, whose: str) -> str:
    """Return the prefix of the keys of such alarms."""
    return f"{about}:{whose}:"


class AlarmEvent(NamedTuple):
    """An event that webhooks send.

    Attributes:
        type: `topic.halted`.
        key: of the alarm that begins or ends.
        at: when, ms since the epoch.
        text: a sentence for people.
        page: the path of the console's page.
    """

    about: AlarmKind
    type: str
    key: str
    at: int
    text: str
    page: str
    data: Mapping[str, Any]

    @property
    def is_end(self) -> bool:
        """Return whether it ends its alarm."""
        return ENDED.get(self.about) == self.type


def begin_event(alarm: Alarm) -> AlarmEvent:
    """Return the event for the begin of an alarm."""
    text = _BEGINS[alarm.about](alarm.data)
    return AlarmEvent(alarm.about, BEGUN[alarm.about], alarm.key, alarm.at, text, _find_page(alarm), alarm.data)


def end_event(alarm: Alarm, at: int) -> AlarmEvent:
    """Return the event for the end of an alarm, which is not one that is sent once."""
    text = f"{_ENDS[alarm.about](alarm.data)}, {_describe_duration(at - alarm.at)} after it began."
    return AlarmEvent(
        alarm.about,
        ENDED[alarm.about],
        alarm.key,
        at,
        text,
        _find_page(alarm),
        {**alarm.data, "ended": format_moment(at)},
    )


def describe_new_group(group: GroupState, more: int) -> Alarm:
    """Return the alarm for a new failure group.

    Parameters:
        more: how many others are new, and have no event of their own.
    """
    return Alarm(AlarmKind.NEW, str(group.id), group.first_at, {**_group_data(group), "more": more})


def describe_regression(group: GroupState) -> Alarm:
    """Return the alarm for a group that failed again in the version that was to fix it."""
    return Alarm(AlarmKind.REGRESSION, str(group.id), group.regressed_at or 0, _group_data(group))


def regression_of_cause(group: GroupState, fix: FixedCause) -> Alarm:
    """Return the alarm for a cause of a group that failed again in the version that was to fix it."""
    told = {**_group_data(group), "cause": fix.cause}
    return Alarm(AlarmKind.REGRESSION, f"{group.id}/{fix.cause}", fix.regressed_at or 0, told)


def describe_growth(group: GroupState, growth: FailureGrowth) -> Alarm:
    """Return the alarm for a group that grows."""
    told = {"failures": growth.failures, "usual": growth.usual, "since": format_moment(growth.since)}
    return Alarm(AlarmKind.GROWTH, str(group.id), growth.since, {**_group_data(group), **told})


def describe_halt(whose: str, topic: str, decision: GroupDecision) -> Alarm:
    """Return the alarm for a halted topic."""
    at = int(decision.since * 1000)
    told = {"topic": topic, "why": _cut_text(decision.why), "by": _cut_text(decision.by), "since": format_moment(at)}
    return Alarm(AlarmKind.HALT, topic, at, {"bridge_group": whose, **told}, whose)


def describe_handler_halt(whose: str, halted: Sequence[tuple[HaltScope, GroupDecision]]) -> Alarm:
    """Return the alarm for a handler that is halted on a topic, or for its halted keys, which it does not name."""
    # The halt of the whole handler comes first (find_small_halts).
    (scope, decision), keys = halted[0], sum(scope.key is not None for scope, _ in halted)
    at = int(decision.since * 1000)
    told = {"topic": scope.topic, "handler": scope.handler, "keys": 0 if scope.key is None else keys}
    said = {"why": _cut_text(decision.why), "by": _cut_text(decision.by), "since": format_moment(at)}
    # No topic's name has a slash.
    return Alarm(AlarmKind.HALT, f"{scope.topic}/{scope.handler}", at, {"bridge_group": whose, **told, **said}, whose)


def describe_open_breaker(whose: str, dependency: str, known: BreakerStatus, handlers: list[str]) -> Alarm:
    """Return the alarm for a dependency whose circuit breaker is open."""
    at = int(known.since * 1000)
    told = {"dependency": dependency, "why": _cut_text(known.why), "handlers": handlers, "since": format_moment(at)}
    return Alarm(AlarmKind.BREAKER, dependency, at, {"bridge_group": whose, **told}, whose)


def describe_awaiting_plan(plan: BulkPlan, since: int) -> Alarm:
    """Return the alarm for a plan that awaits a second person, without its filter and reason.

    Parameters:
        since: ms since the epoch.
    """
    told = {"plan": plan.id, "what": str(plan.what), "by": _cut_text(plan.planner or plan.by)}
    counted = {"deliveries": plan.counts.letters, "since": format_moment(since)}
    return Alarm(AlarmKind.APPROVAL, str(plan.id), since, {**told, **counted})


def describe_trial(webhook: str, by: str) -> Alarm:
    """Return the test alarm of a webhook."""
    return Alarm(AlarmKind.TEST, webhook, int(time.time() * 1000), {"webhook": webhook, "by": _cut_text(by)})


def _group_data(group: GroupState) -> dict[str, Any]:
    names = {"handler": group.handler, "error_class": group.error_class, "where": group.place}
    versions = [_cut_text(version) for version in group.versions[:10]]
    times = {"first_at": format_moment(group.first_at), "last_at": format_moment(group.last_at)}
    cut = {name: _cut_text(value) for name, value in names.items()}
    return {"group": group.id, **cut, "open": group.open, "count": group.count, "versions": versions, **times}


def _name_group(data: Mapping[str, Any]) -> str:
    names = (data["handler"] or "others", data["error_class"] or "no class of error", data["where"])
    cause = f"cause {data['cause']} of " if data.get("cause") else ""
    return f"{cause}group {data['group']}: {', '.join(filter(None, names))}"


def _name_halted(data: Mapping[str, Any]) -> str:
    """Return the topic of a halt, or the handler with its number of halted keys, and the verb."""
    if "keys" not in data:
        return f"Topic {data['topic']} is"
    handler = f"andler {data['handler']} of topic {data['topic']}"
    if not data["keys"]:
        return f"H{handler} is"
    return f"{format_count(data['keys'], 'key')} of h{handler} {inflect_verb(data['keys'], 'are')}"


def _name_plan(data: Mapping[str, Any]) -> str:
    return f"Plan {data['plan']} of {data['by']}"


def _describe_new(data: Mapping[str, Any]) -> str:
    count = data["more"]
    more = f" {format_count(count, 'more group')} {inflect_verb(count, 'are')} new." if count else ""
    return f"New {_name_group(data)}; {data['open']:,} open.{more}"


def _describe_growing(data: Mapping[str, Any]) -> str:
    usual = f"{data['usual']:g} an hour were usual"
    grown = f"{format_count(data['failures'], 'dead letter')} of {_name_group(data)}, since {data['since']}"
    return f"Failures grow: {grown}; {usual}, {data['open']:,} are open."


_BEGINS: Final[Mapping[AlarmKind, Callable[[Mapping[str, Any]], str]]] = {
    AlarmKind.NEW: _describe_new,
    AlarmKind.REGRESSION: lambda data: (
        f"Regression: a failure that was marked as fixed failed again, {_name_group(data)}."
    ),
    AlarmKind.GROWTH: _describe_growing,
    AlarmKind.HALT: lambda data: f"{_name_halted(data)} halted by {data['by']}: {data['why'].rstrip('.')}.",
    AlarmKind.BREAKER: lambda data: (
        f"The circuit breaker of {data['dependency']} is open: {data['why'].rstrip('.')}. Deliveries that need it "
        f"wait, and spend no attempt: {', '.join(data['handlers'])}."
    ),
    AlarmKind.APPROVAL: lambda data: (
        f"{_name_plan(data)} awaits a second person: {data['what']} of {format_count(data['deliveries'], 'delivery')}. "
        "Nothing of it is done before somebody else approves it."
    ),
    AlarmKind.TEST: lambda data: f"A test of the webhook {data['webhook']}, by {data['by']}: it arrives.",
}
_ENDS: Final[Mapping[AlarmKind, Callable[[Mapping[str, Any]], str]]] = {
    AlarmKind.REGRESSION: lambda data: f"No regression any more, {_name_group(data)}",
    AlarmKind.GROWTH: lambda data: f"It does not grow any more, {_name_group(data)}",
    AlarmKind.HALT: lambda data: f"{_name_halted(data)} resumed",
    AlarmKind.BREAKER: lambda data: f"The circuit breaker of {data['dependency']} is closed, and the deliveries run",
    AlarmKind.APPROVAL: lambda data: f"{_name_plan(data)} awaits nobody any more",
}


def _find_page(alarm: Alarm) -> str:
    if alarm.about is AlarmKind.TEST:
        return "/admin/webhooks"
    if alarm.about is AlarmKind.APPROVAL:
        return f"/plans/{alarm.name}"
    return "/" if alarm.about in (AlarmKind.HALT, AlarmKind.BREAKER) else f"/groups/{alarm.name.partition('/')[0]}"


def _describe_duration(ms: int) -> str:
    seconds = max(0, ms // 1000)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    size, unit = next((each for each in units if seconds >= each[0]), units[-1])
    return f"{seconds // size} {unit}"


def _cut_text(text: str) -> str:
    return make_printable(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
