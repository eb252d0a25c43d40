"""Which retry and replay topics belong to a source: their names read backwards, by the patterns (pure)."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, NamedTuple

from bridge.topics.names import TopicNames

_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}
_DELAY: Final = "(?P<delay>[1-9][0-9]{0,8}[hms])"
#: Delays of every form, with which two sources' names are tried against each other.
_TRIED: Final = (1, 5, 10, 60, 90, 300, 3_600, 36_000)
#: What no topic is called, in whose place the parts of a pattern are looked for.
_TOPIC, _TIER = "\0", "\1"


class Belonging(NamedTuple):
    """A topic of ours.

    Attributes:
        source: whose deliveries lie there.
        delay: seconds that they wait there; 0 for a replay topic.
    """

    kind: Literal["retry", "replay"]
    source: str
    delay: int = 0


class Belongings:
    """Tells the retry and replay topics of some sources from all others.

    Parameters:
        names: the patterns.
        sources: the topics that handlers name.
    """

    def __init__(self, names: TopicNames, sources: Iterable[str]) -> None:
        self._names = names
        self._sources = {source: _retries(names, re.escape(source)) for source in sources}
        self._replays = {names.replay(source): source for source in self._sources}
        self._any = _retries(names, "(?P<topic>[A-Za-z0-9._-]+)")

    def all_of(self, name: str) -> list[Belonging]:
        """Every reading of a name; more than one is a fault of the patterns (`ambiguities`)."""
        found = [
            Belonging("retry", source, _seconds(match["delay"]))
            for source, pattern in self._sources.items()
            if (match := pattern.fullmatch(name))
        ]
        return [*found, Belonging("replay", self._replays[name])] if name in self._replays else found

    def of(self, names: Iterable[str]) -> dict[str, Belonging]:
        """Those of these topics that are ours, with whose they are; what is itself a source is none of them."""
        return {name: found[0] for name in names if name not in self._sources and (found := self.all_of(name))}

    def source_of(self, name: str) -> str | None:
        """The source of what looks like a retry topic by its name, also of one that no handler names (any more)."""
        match = self._any.fullmatch(name)
        return match["topic"] if match else None


def ambiguities(names: TopicNames, topics: Collection[str]) -> list[str]:
    """Sources of whose retry topics one could be taken for another's, or for another kind of topic; a sentence each."""
    sources = sorted(set(topics))
    ours = Belongings(names, sources)
    found: dict[tuple[str, ...], str] = {}
    for name, what in _tried(names, sources):
        retries = {f"a retry topic of {each.source!r}" for each in ours.all_of(name) if each.kind == "retry"}
        found.setdefault(tuple(sorted({what, *retries})), name)
    return [
        f"topic {name!r} would be {' and '.join(readings)}: put something between {{topic}} and {{delay}} in "
        "kafka_retry_topic that no topic's name has there, or rename one."
        for readings, name in found.items()
        if len(readings) > 1
    ]


def _tried(names: TopicNames, sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of topics that could be mistaken, and what each is."""
    for source in sources:
        yield source, f"the source {source!r}"
        yield names.replay(source), f"the replay topic of {source!r}"
        yield names.dead_letters(source), f"the dead-letter topic of {source!r}"
        for delay in _TRIED:
            yield names.retry(source, delay), f"a retry topic of {source!r}"


def _retries(names: TopicNames, topic: str) -> re.Pattern[str]:
    """The names that a source's retry topics may have.

    Parameters:
        topic: what stands for the source, as a pattern.
    """
    filled = names.retry_pattern.format(topic=_TOPIC, delay=_TIER, group=names.group)
    first, *rest = filled.split(_TIER)
    # Where a part occurs again it is the same again.
    pattern = re.escape(first) + _DELAY + "(?P=delay)".join(map(re.escape, rest))
    before, *others = pattern.split(re.escape(_TOPIC))
    again = "(?P=topic)" if "?P<topic>" in topic else topic
    return re.compile(before + again.join([topic + others[0], *others[1:]]) if others else before)


def _seconds(tier: str) -> int:
    return int(tier[:-1]) * _SECONDS[tier[-1]]
