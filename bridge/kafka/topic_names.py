"""The names of retry, replay, dead-letter and control topics by their patterns, and the way back to the source topic
(pure).
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from bridge.settings import Settings

#: The longest topic name that Kafka takes (org.apache.kafka.common.internals.Topic).
MAX_TOPIC_NAME = 249
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME}}}")
#: The regular expressions of a pattern's fields, other than `.+`.
_FILLED = {"delay": r"\d+[smh]"}
_UNITS = (("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The patterns of our topics' names, with the fields `{topic}`, `{delay}` and `{group}`."""

    group: str
    retry_pattern: str = "{topic}.retry.{delay}"
    replay_pattern: str = "{topic}.replay"
    dead_letter_pattern: str = "{topic}.dlq"
    control_pattern: str = "{group}.control"

    @classmethod
    def from_settings(cls, settings: Settings) -> "TopicNames":
        """Return the names by the settings' patterns for their group."""
        file = settings.file
        return cls(
            settings.group,
            file.kafka_retry_topic,
            file.kafka_replay_topic,
            file.kafka_dead_letter_topic,
            file.kafka_control_topic,
        )

    @property
    def control(self) -> str:
        """Return the name of the control topic."""
        return self.control_pattern.format(group=self.group)

    def retry(self, topic: str, delay: int) -> str:
        """Return the name of the topic in which records of `topic` wait for `delay` seconds."""
        return self.retry_pattern.format(topic=topic, group=self.group, delay=format_delay(delay))

    def replay(self, topic: str) -> str:
        """Return the name of the topic for replays of `topic`."""
        return self.replay_pattern.format(topic=topic, group=self.group)

    def dead_letters(self, topic: str) -> str:
        """Return the name of the topic for dead letters of `topic`."""
        return self.dead_letter_pattern.format(topic=topic, group=self.group)

    def clashes(self, topics: Iterable[str]) -> list[str]:
        """Return the faults of the patterns for these topics, a sentence each."""
        sources = sorted(set(topics))
        faults = []
        owner: dict[str, str] = {}
        if fault := self._control_fault(sources):
            faults.append(fault)
        for source in sources:
            if fault := topic_fault(source):
                faults.append(fault)
                continue
            for name in (self.dead_letters(source), self.replay(source)):
                if name in sources:
                    faults.append(
                        f"topic {name!r} is consumed, but it is also where records of {source!r} go: "
                        "rename one, or change the kafka_*_topic pattern."
                    )
                elif name in owner:
                    faults.append(
                        f"records of {owner[name]!r} and {source!r} would both go to {name!r}: "
                        "put {topic} in the pattern."
                    )
                elif len(name) > MAX_TOPIC_NAME:
                    faults.append(
                        f"topic name {name!r} is longer than Kafka's {MAX_TOPIC_NAME} characters: shorten the pattern."
                    )
                owner.setdefault(name, source)
        return faults

    def _control_fault(self, sources: Collection[str]) -> str | None:
        """Return the fault of the control topic's name."""
        if not _TOPIC.fullmatch(self.control):
            return f"kafka_control_topic: {topic_fault(self.control)}"
        if self.control in sources:
            return (
                f"topic {self.control!r} is consumed, but it is also the control topic of the group: rename one, or "
                "change kafka_control_topic."
            )
        for source in sources:
            if self.control in (self.dead_letters(source), self.replay(source)):
                return (
                    f"decisions of the group and records of {source!r} would both go to {self.control!r}: "
                    "change one of the kafka_*_topic patterns."
                )
        return None


_DEFAULTS = TopicNames("")


def name_faults(settings: Settings, topics: Collection[str]) -> list[str]:
    """Return the faults of the names of the handlers' topics and of those in `kafka_topics`."""
    others = [topic for topic in settings.file.kafka_topics if topic not in topics]
    in_settings = [f"kafka_topics: {fault}" for topic in others if (fault := topic_fault(topic))]
    return [*TopicNames.from_settings(settings).clashes(topics), *in_settings]


def topic_fault(name: str) -> str | None:
    """Return why Kafka can have no topic of this name, a sentence; `None` if it can.

    librdkafka takes a name that begins with `^` as a pattern, and would consume topics that no handler names.
    """
    if _TOPIC.fullmatch(name) and name not in (".", ".."):
        return None
    pattern = " It is no pattern either: name each topic." if name.startswith("^") else ""
    return (
        f"{name!r} is no name of a topic: Kafka takes 1 to {MAX_TOPIC_NAME} letters of A-Z, a-z, 0-9, '.', '_' "
        f"and '-'.{pattern}"
    )


def is_internal(name: str) -> bool:
    """Return whether Kafka, or software built on it, keeps its own state in a topic of this name."""
    return name.startswith("__")


def role_for_any_group(name: str, names: TopicNames) -> str:
    """Return the role of a topic of this name for some consumer group of this project; "" for none.

    Writing to such a topic acts: the control topic halts and resumes, retry and replay topics are handled. The default
    patterns and those of the settings are checked.
    """
    for role, patterns in (
        ("control", (_DEFAULTS.control_pattern, names.control_pattern)),
        ("replay", (_DEFAULTS.replay_pattern, names.replay_pattern)),
        ("retry", (_DEFAULTS.retry_pattern, names.retry_pattern)),
    ):
        if any(_matches(name, pattern) for pattern in patterns):
            return role
    return ""


def _matches(name: str, pattern: str) -> bool:
    # A pattern without fixed letters would match every name.
    if not re.search("[A-Za-z]", re.sub(r"\{\w+\}", "", pattern)):
        return False
    anything = re.sub(r"\\\{(\w+)\\\}", lambda each: _FILLED.get(each[1], ".+"), re.escape(pattern))
    return re.fullmatch(anything, name) is not None


def format_delay(seconds: int) -> str:
    """Return a delay as in a topic's name, in the largest unit that divides it.

    >>> format_delay(300), format_delay(3600), format_delay(45), format_delay(90)
    ('5m', '1h', '45s', '90s')
    """
    for unit, size in _UNITS:
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}
_DELAY: Final = "(?P<delay>[1-9][0-9]{0,8}[hms])"
_DELAY_TEXT: Final = re.compile("[1-9][0-9]{0,8}[hms]")
#: Maximum number of characters of a delay.
_LONGEST: Final = 10
#: Delays of every form, to compare the names of two sources.
_SAMPLE_DELAYS: Final = (1, 5, 10, 60, 90, 300, 3_600, 36_000)
#: Characters that no topic name has, as markers of a pattern's fields.
_TOPIC_MARK, _DELAY_MARK = "\0", "\1"


class DerivedTopic(NamedTuple):
    """A retry or replay topic of a source.

    Attributes:
        source: the topic whose deliveries it holds.
        delay: seconds that they wait there; 0 for a replay topic.
    """

    kind: Literal["retry", "replay"]
    source: str
    delay: int = 0


class DerivedTopics:
    """A recogniser of the retry and replay topics of some sources.

    Parameters:
        names: the patterns.
        sources: the handlers' topics.
    """

    def __init__(self, names: TopicNames, sources: Iterable[str]) -> None:
        self._sources = frozenset(sources)
        self._names = names
        self._replays = {names.replay(source): source for source in self._sources}
        self._any = _retry_name_pattern(names)
        self._parts: dict[str, list[str]] = {}

    def all_of(self, name: str) -> list[DerivedTopic]:
        """Return every reading of a name; more than one is a fault of the patterns (`find_ambiguous_names`).

        The cost depends on the length of the name, not on the number of sources.
        """
        readings = {(source, delay) for delay in _delays(name) for source in self._sources_with(name, delay)}
        derived = [DerivedTopic("retry", source, _seconds(delay)) for source, delay in sorted(readings)]
        return [*derived, DerivedTopic("replay", self._replays[name])] if name in self._replays else derived

    def _sources_with(self, name: str, delay: str) -> Iterable[str]:
        """Return the sources whose retry topic of a delay has this name."""
        parts = self._parts.get(delay)
        if parts is None:
            filled = self._names.retry_pattern.format(topic=_TOPIC_MARK, delay=delay, group=self._names.group)
            parts = self._parts[delay] = filled.split(_TOPIC_MARK)
        times = len(parts) - 1
        if not times:
            return self._sources if name == parts[0] else ()
        length, rest = divmod(len(name) - sum(map(len, parts)), times)
        source = name[len(parts[0]) : len(parts[0]) + length]
        return (source,) if not rest and source in self._sources and source.join(parts) == name else ()

    def find_derived(self, names: Iterable[str]) -> dict[str, DerivedTopic]:
        """Return the retry and replay topics among these names; source topics are left out."""
        return {name: derived[0] for name in names if name not in self._sources and (derived := self.all_of(name))}

    def source_of(self, name: str) -> str | None:
        """Return the source of a name that looks like a retry topic, also of a source without handlers."""
        match = self._any.fullmatch(name)
        return match["topic"] if match else None


def find_ambiguous_names(names: TopicNames, topics: Collection[str]) -> list[str]:
    """Return a sentence for each name that could be a retry topic of one source and another topic."""
    sources = sorted(set(topics))
    ours = DerivedTopics(names, sources)
    found: dict[tuple[str, ...], str] = {}
    for name, what in _name_samples(names, sources):
        retries = {f"a retry topic of {each.source!r}" for each in ours.all_of(name) if each.kind == "retry"}
        found.setdefault(tuple(sorted({what, *retries})), name)
    return [
        f"topic {name!r} would be {' and '.join(readings)}: put something between {{topic}} and {{delay}} in "
        "kafka_retry_topic that no topic's name has there, or rename one."
        for readings, name in found.items()
        if len(readings) > 1
    ]


def _name_samples(names: TopicNames, sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names that could be mistaken, with their meaning."""
    for source in sources:
        yield source, f"the source {source!r}"
        yield names.replay(source), f"the replay topic of {source!r}"
        yield names.dead_letters(source), f"the dead-letter topic of {source!r}"
        for delay in _SAMPLE_DELAYS:
            yield names.retry(source, delay), f"a retry topic of {source!r}"


def _delays(name: str) -> set[str]:
    """Return every part of a name that may be a delay."""
    return {
        name[first:end]
        for first, letter in enumerate(name)
        if letter in "123456789"
        for end in range(first + 2, min(len(name), first + _LONGEST) + 1)
        if _DELAY_TEXT.fullmatch(name, first, end)
    }


def _retry_name_pattern(names: TopicNames) -> re.Pattern[str]:
    """Return the pattern of the names of any source's retry topics."""
    topic = "(?P<topic>[A-Za-z0-9._-]+)"
    filled = names.retry_pattern.format(topic=_TOPIC_MARK, delay=_DELAY_MARK, group=names.group)
    first, *rest = filled.split(_DELAY_MARK)
    # A repeated field must have the same value.
    pattern = re.escape(first) + _DELAY + "(?P=delay)".join(map(re.escape, rest))
    before, *others = pattern.split(re.escape(_TOPIC_MARK))
    return re.compile(before + "(?P=topic)".join([topic + others[0], *others[1:]]) if others else before)


def _seconds(tier: str) -> int:
    return int(tier[:-1]) * _SECONDS[tier[-1]]
