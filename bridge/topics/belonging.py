"""Which retry and replay topics belong to a source: their names read backwards, by the patterns (pure)."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, NamedTuple

from bridge.topics.names import TopicNames

_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}
_DELAY: Final = "(?P<delay>[1-9][0-9]{0,8}[hms])"
_DELAY_TEXT: Final = re.compile("[1-9][0-9]{0,8}[hms]")
#: Letters of the longest delay.
_LONGEST: Final = 10
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
        self._sources = frozenset(sources)
        self._names = names
        self._replays = {names.replay(source): source for source in self._sources}
        self._any = _retries(names)
        self._parts: dict[str, list[str]] = {}

    def all_of(self, name: str) -> list[Belonging]:
        """Every reading of a name; more than one is a fault of the patterns (`ambiguities`).

        The work grows with the length of the name, and not with the number of sources.
        """
        readings = {(source, delay) for delay in _delays(name) for source in self._sources_with(name, delay)}
        found = [Belonging("retry", source, _seconds(delay)) for source, delay in sorted(readings)]
        return [*found, Belonging("replay", self._replays[name])] if name in self._replays else found

    def _sources_with(self, name: str, delay: str) -> Iterable[str]:
        """The sources whose retry topic of a delay has this name."""
        parts = self._parts.get(delay)
        if parts is None:
            filled = self._names.retry_pattern.format(topic=_TOPIC, delay=delay, group=self._names.group)
            parts = self._parts[delay] = filled.split(_TOPIC)
        times = len(parts) - 1
        if not times:
            return self._sources if name == parts[0] else ()
        length, rest = divmod(len(name) - sum(map(len, parts)), times)
        source = name[len(parts[0]) : len(parts[0]) + length]
        return (source,) if not rest and source in self._sources and source.join(parts) == name else ()

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


def _delays(name: str) -> set[str]:
    """Every part of a name that may be a delay."""
    return {
        name[first:end]
        for first, letter in enumerate(name)
        if letter in "123456789"
        for end in range(first + 2, min(len(name), first + _LONGEST) + 1)
        if _DELAY_TEXT.fullmatch(name, first, end)
    }


def _retries(names: TopicNames) -> re.Pattern[str]:
    """The names that retry topics of any source may have."""
    topic = "(?P<topic>[A-Za-z0-9._-]+)"
    filled = names.retry_pattern.format(topic=_TOPIC, delay=_TIER, group=names.group)
    first, *rest = filled.split(_TIER)
    # Where a part occurs again it is the same again.
    pattern = re.escape(first) + _DELAY + "(?P=delay)".join(map(re.escape, rest))
    before, *others = pattern.split(re.escape(_TOPIC))
    return re.compile(before + "(?P=topic)".join([topic + others[0], *others[1:]]) if others else before)


def _seconds(tier: str) -> int:
    return int(tier[:-1]) * _SECONDS[tier[-1]]
