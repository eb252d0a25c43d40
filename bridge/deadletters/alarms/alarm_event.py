"""The alarms and events that webhooks tell of, each with a sentence for people (pure).

No payload and no error message is told, because events leave the network.
"""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bridge.deadletters.inspection.failure_groups import CauseFix, GroupState
from bridge.deadletters.model.failure_growth import FailureGrowth
from bridge.deadletters.model.letter_view import format_moment
from bridge.formats.group_decision import GroupDecision
from bridge.formats.text_forms import make_printable
from bridge.ledger.circuit_breakers import BreakerStatus

#: Characters that are told of a name, or of a reason, that others have written.
LONGEST: Final = 300


class AlarmKind(StrEnum):
    """What a webhook can be asked to tell of."""

    NEW = "new"
    REGRESSION = "regression"
    GROWTH = "growth"
    HALT = "halt"
    BREAKER = "breaker"
    TEST = "test"
    """What somebody has asked for, to see whether it arrives: every webhook tells of it."""


#: What a webhook tells of that was not told which.
ALL: Final = tuple(about for about in AlarmKind if about is not AlarmKind.TEST)
#: What has begun, and what has ended; what has no end is told once.
BEGUN: Final[Mapping[AlarmKind, str]] = {
    AlarmKind.NEW: "group.new",
    AlarmKind.REGRESSION: "group.regressed",
    AlarmKind.GROWTH: "group.growing",
    AlarmKind.HALT: "topic.halted",
    AlarmKind.BREAKER: "breaker.opened",
    AlarmKind.TEST: "webhook.test",
}
ENDED: Final[Mapping[AlarmKind, str]] = {
    AlarmKind.REGRESSION: "group.regression_over",
    AlarmKind.GROWTH: "group.growth_over",
    AlarmKind.HALT: "topic.resumed",
    AlarmKind.BREAKER: "breaker.closed",
}


class Alarm(NamedTuple):
    """What is so, and should not be.

    Attributes:
        name: of the group of letters (its number, and `/` and a cause), the topic, or the dependency.
        at: since when, ms since the epoch.
        data: JSON values.
        whose: the consumer group's, where it is one group's alone: several may share a database.
    """

    about: AlarmKind
    name: str
    at: int
    data: Mapping[str, Any]
    whose: str = ""

    @property
    def key(self) -> str:
        """By which its end is told to be its own: `halt:bridge:orders`."""
        return f"{start_alarm_key(self.about, self.whose)}{self.name}"


def start_alarm_key(about: AlarmKind, whose: str) -> str:
    """How the keys of such alarms begin."""
    return f"{about}:{whose}:"


class AlarmEvent(NamedTuple):
    """What is told.

    Attributes:
        type: `topic.halted`.
        key: of the alarm that begins or ends with it.
        at: when, ms since the epoch.
        text: the same for people.
        page: of the console.
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
        """Whether its alarm ends with it."""
        return ENDED.get(self.about) == self.type


def begin_event(alarm: Alarm) -> AlarmEvent:
    """An alarm begins."""
    text = _BEGINS[alarm.about](alarm.data)
    return AlarmEvent(alarm.about, BEGUN[alarm.about], alarm.key, alarm.at, text, _find_page(alarm), alarm.data)


def end_event(alarm: Alarm, at: int) -> AlarmEvent:
    """An alarm ends, which is not one of what is told once."""
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
    """A group that there was not before.

    Parameters:
        more: how many others are new as well, and not told one by one.
    """
    return Alarm(AlarmKind.NEW, str(group.id), group.first_at, {**_group_data(group), "more": more})


def describe_regression(group: GroupState) -> Alarm:
    """A group that failed again in the version that was to mend it."""
    return Alarm(AlarmKind.REGRESSION, str(group.id), group.regressed_at or 0, _group_data(group))


def regression_of_cause(group: GroupState, fix: CauseFix) -> Alarm:
    """A cause of a group that failed again in the version that was to fix it."""
    told = {**_group_data(group), "cause": fix.cause}
    return Alarm(AlarmKind.REGRESSION, f"{group.id}/{fix.cause}", fix.regressed_at or 0, told)


def describe_growth(group: GroupState, growth: FailureGrowth) -> Alarm:
    """A group that grows."""
    told = {"failures": growth.failures, "usual": growth.usual, "since": format_moment(growth.since)}
    return Alarm(AlarmKind.GROWTH, str(group.id), growth.since, {**_group_data(group), **told})


def describe_halt(whose: str, topic: str, decision: GroupDecision) -> Alarm:
    """A topic that is halted."""
    at = int(decision.since * 1000)
    told = {"topic": topic, "why": _cut_text(decision.why), "by": _cut_text(decision.by), "since": format_moment(at)}
    return Alarm(AlarmKind.HALT, topic, at, {"bridge_group": whose, **told}, whose)


def describe_open_breaker(whose: str, dependency: str, known: BreakerStatus, handlers: list[str]) -> Alarm:
    """A dependency that is held to be down."""
    at = int(known.since * 1000)
    told = {"dependency": dependency, "why": _cut_text(known.why), "handlers": handlers, "since": format_moment(at)}
    return Alarm(AlarmKind.BREAKER, dependency, at, {"bridge_group": whose, **told}, whose)


def describe_trial(webhook: str, by: str) -> Alarm:
    """Somebody wants to see whether a webhook arrives."""
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


def _describe_new(data: Mapping[str, Any]) -> str:
    more = f" So are {data['more']:,} more groups." if data["more"] else ""
    return f"New {_name_group(data)}; {data['open']:,} open.{more}"


def _describe_growing(data: Mapping[str, Any]) -> str:
    usual = f"{data['usual']:g} an hour were usual"
    grown = f"{data['failures']:,} dead letters of {_name_group(data)}, since {data['since']}"
    return f"It grows: {grown}; {usual}, {data['open']:,} are open."


_BEGINS: Final[Mapping[AlarmKind, Callable[[Mapping[str, Any]], str]]] = {
    AlarmKind.NEW: _describe_new,
    AlarmKind.REGRESSION: lambda data: (
        f"Regression: a failure that was marked as fixed came back, {_name_group(data)}."
    ),
    AlarmKind.GROWTH: _describe_growing,
    AlarmKind.HALT: lambda data: f"Topic {data['topic']} is halted by {data['by']}: {data['why'].rstrip('.')}.",
    AlarmKind.BREAKER: lambda data: (
        f"The circuit breaker of {data['dependency']} is open: {data['why'].rstrip('.')}. Deliveries that need it "
        f"wait, and spend no attempt: {', '.join(data['handlers'])}."
    ),
    AlarmKind.TEST: lambda data: f"A test of the webhook {data['webhook']}, by {data['by']}: it arrives.",
}
_ENDS: Final[Mapping[AlarmKind, Callable[[Mapping[str, Any]], str]]] = {
    AlarmKind.REGRESSION: lambda data: f"No regression any more, {_name_group(data)}",
    AlarmKind.GROWTH: lambda data: f"It does not grow any more, {_name_group(data)}",
    AlarmKind.HALT: lambda data: f"Topic {data['topic']} is resumed",
    AlarmKind.BREAKER: lambda data: f"The circuit breaker of {data['dependency']} is closed, and the deliveries run",
}


def _find_page(alarm: Alarm) -> str:
    if alarm.about is AlarmKind.TEST:
        return "/admin/webhooks"
    return "/" if alarm.about in (AlarmKind.HALT, AlarmKind.BREAKER) else f"/groups/{alarm.name.partition('/')[0]}"


def _describe_duration(ms: int) -> str:
    seconds = max(0, ms // 1000)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    size, unit = next((each for each in units if seconds >= each[0]), units[-1])
    return f"{seconds // size} {unit}"


def _cut_text(text: str) -> str:
    return make_printable(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
