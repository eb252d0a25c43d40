"""What webhooks tell of: alarms that begin and end, and what happens once; each with a sentence for people (pure).

Nothing of a payload, nor of an error's message, is told: what is sent leaves the house.
"""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bridge.deadletters.questions.groups import CauseFix, Grouped
from bridge.deadletters.questions.growing import Growth
from bridge.deadletters.questions.shown import moment
from bridge.ledger.breakers import Known
from bridge.records.control import Decision
from bridge.records.printable import printable

#: Characters that are told of a name, or of a reason, that others have written.
LONGEST: Final = 300


class About(StrEnum):
    """What a webhook can be asked to tell of."""

    NEW = "new"
    REGRESSION = "regression"
    GROWTH = "growth"
    HALT = "halt"
    BREAKER = "breaker"
    TEST = "test"
    """What somebody has asked for, to see whether it arrives: every webhook tells of it."""


#: What a webhook tells of that was not told which.
ALL: Final = tuple(about for about in About if about is not About.TEST)
#: What has begun, and what has ended; what has no end is told once.
BEGUN: Final[Mapping[About, str]] = {
    About.NEW: "group.new",
    About.REGRESSION: "group.regressed",
    About.GROWTH: "group.growing",
    About.HALT: "topic.halted",
    About.BREAKER: "breaker.opened",
    About.TEST: "webhook.test",
}
ENDED: Final[Mapping[About, str]] = {
    About.REGRESSION: "group.regression_over",
    About.GROWTH: "group.growth_over",
    About.HALT: "topic.resumed",
    About.BREAKER: "breaker.closed",
}


class Alarm(NamedTuple):
    """What is so, and should not be.

    Attributes:
        name: of the group of letters (its number, and `/` and a cause), the topic, or the dependency.
        at: since when, ms since the epoch.
        data: JSON values.
        whose: the consumer group's, where it is one group's alone: several may share a database.
    """

    about: About
    name: str
    at: int
    data: Mapping[str, Any]
    whose: str = ""

    @property
    def key(self) -> str:
        """By which its end is told to be its own: `halt:bridge:orders`."""
        return f"{start_of(self.about, self.whose)}{self.name}"


def start_of(about: About, whose: str) -> str:
    """How the keys of such alarms begin."""
    return f"{about}:{whose}:"


class Event(NamedTuple):
    """What is told.

    Attributes:
        type: `topic.halted`.
        key: of the alarm that begins or ends with it.
        at: when, ms since the epoch.
        text: the same for people.
        page: of the console.
    """

    about: About
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


def begins(alarm: Alarm) -> Event:
    """An alarm begins."""
    text = _BEGINS[alarm.about](alarm.data)
    return Event(alarm.about, BEGUN[alarm.about], alarm.key, alarm.at, text, _page(alarm), alarm.data)


def ends(alarm: Alarm, at: int) -> Event:
    """An alarm ends, which is not one of what is told once."""
    text = f"{_ENDS[alarm.about](alarm.data)}, {_lasted(at - alarm.at)} after it began."
    return Event(
        alarm.about, ENDED[alarm.about], alarm.key, at, text, _page(alarm), {**alarm.data, "ended": moment(at)}
    )


def new_group(group: Grouped, more: int) -> Alarm:
    """A group that there was not before.

    Parameters:
        more: how many others are new as well, and not told one by one.
    """
    return Alarm(About.NEW, str(group.id), group.first_at, {**_of_group(group), "more": more})


def regression(group: Grouped) -> Alarm:
    """A group that failed again in the version that was to mend it."""
    return Alarm(About.REGRESSION, str(group.id), group.regressed_at or 0, _of_group(group))


def regression_of_cause(group: Grouped, fix: CauseFix) -> Alarm:
    """A cause of a group that failed again in the version that was to fix it."""
    told = {**_of_group(group), "cause": fix.cause}
    return Alarm(About.REGRESSION, f"{group.id}/{fix.cause}", fix.regressed_at or 0, told)


def growing(group: Grouped, growth: Growth) -> Alarm:
    """A group that grows."""
    told = {"failures": growth.failures, "usual": growth.usual, "since": moment(growth.since)}
    return Alarm(About.GROWTH, str(group.id), growth.since, {**_of_group(group), **told})


def halted(whose: str, topic: str, decision: Decision) -> Alarm:
    """A topic that is halted."""
    at = int(decision.since * 1000)
    told = {"topic": topic, "why": _cut(decision.why), "by": _cut(decision.by), "since": moment(at)}
    return Alarm(About.HALT, topic, at, {"bridge_group": whose, **told}, whose)


def opened(whose: str, dependency: str, known: Known, handlers: list[str]) -> Alarm:
    """A dependency that is held to be down."""
    at = int(known.since * 1000)
    told = {"dependency": dependency, "why": _cut(known.why), "handlers": handlers, "since": moment(at)}
    return Alarm(About.BREAKER, dependency, at, {"bridge_group": whose, **told}, whose)


def tried(webhook: str, by: str) -> Alarm:
    """Somebody wants to see whether a webhook arrives."""
    return Alarm(About.TEST, webhook, int(time.time() * 1000), {"webhook": webhook, "by": _cut(by)})


def _of_group(group: Grouped) -> dict[str, Any]:
    names = {"handler": group.handler, "error_class": group.error_class, "where": group.place}
    versions = [_cut(version) for version in group.versions[:10]]
    times = {"first_at": moment(group.first_at), "last_at": moment(group.last_at)}
    cut = {name: _cut(value) for name, value in names.items()}
    return {"group": group.id, **cut, "open": group.open, "count": group.count, "versions": versions, **times}


def _named(data: Mapping[str, Any]) -> str:
    names = (data["handler"] or "others", data["error_class"] or "no class of error", data["where"])
    cause = f"cause {data['cause']} of " if data.get("cause") else ""
    return f"{cause}group {data['group']}: {', '.join(filter(None, names))}"


def _new(data: Mapping[str, Any]) -> str:
    more = f" So are {data['more']:,} more groups." if data["more"] else ""
    return f"New {_named(data)}; {data['open']:,} open.{more}"


def _grows(data: Mapping[str, Any]) -> str:
    usual = f"{data['usual']:g} an hour were usual"
    grown = f"{data['failures']:,} dead letters of {_named(data)}, since {data['since']}"
    return f"It grows: {grown}; {usual}, {data['open']:,} are open."


_BEGINS: Final[Mapping[About, Callable[[Mapping[str, Any]], str]]] = {
    About.NEW: _new,
    About.REGRESSION: lambda data: f"Regression: what was to be mended failed again, {_named(data)}.",
    About.GROWTH: _grows,
    About.HALT: lambda data: f"Topic {data['topic']} is halted by {data['by']}: {data['why'].rstrip('.')}.",
    About.BREAKER: lambda data: (
        f"{data['dependency']} is held to be down: {data['why'].rstrip('.')}. What needs it waits, and spends no "
        f"attempt: {', '.join(data['handlers'])}."
    ),
    About.TEST: lambda data: f"A test of the webhook {data['webhook']}, by {data['by']}: it arrives.",
}
_ENDS: Final[Mapping[About, Callable[[Mapping[str, Any]], str]]] = {
    About.REGRESSION: lambda data: f"No regression any more, {_named(data)}",
    About.GROWTH: lambda data: f"It does not grow any more, {_named(data)}",
    About.HALT: lambda data: f"Topic {data['topic']} goes on",
    About.BREAKER: lambda data: f"{data['dependency']} is there again, and all that needs it runs",
}


def _page(alarm: Alarm) -> str:
    if alarm.about is About.TEST:
        return "/admin/webhooks"
    return "/" if alarm.about in (About.HALT, About.BREAKER) else f"/groups/{alarm.name.partition('/')[0]}"


def _lasted(ms: int) -> str:
    seconds = max(0, ms // 1000)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    size, unit = next((each for each in units if seconds >= each[0]), units[-1])
    return f"{seconds // size} {unit}"


def _cut(text: str) -> str:
    return printable(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
