"""Names of the topics that belong to a source topic: retry, replay and dead letters."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bridge.settings import Settings

#: Longest name that Kafka takes for a topic (org.apache.kafka.common.internals.Topic).
MAX_TOPIC_NAME = 249
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME}}}")
#: What is filled in for a name of a pattern, besides what any topic or group may be called.
_FILLED = {"delay": r"\d+[smh]"}
_UNITS = (("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Patterns for the topics of ours; `{topic}`, `{delay}` and `{group}` are filled in."""

    group: str
    retry_pattern: str = "{topic}.retry.{delay}"
    replay_pattern: str = "{topic}.replay"
    dead_letter_pattern: str = "{topic}.dlq"
    control_pattern: str = "{group}.control"

    @classmethod
    def of(cls, settings: Settings) -> "TopicNames":
        """The names that the settings' patterns give for their group."""
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
        """The topic that has what was decided for the group."""
        return self.control_pattern.format(group=self.group)

    def retry(self, topic: str, delay: int) -> str:
        """The topic in which records of `topic` wait for `delay` seconds."""
        return self.retry_pattern.format(topic=topic, group=self.group, delay=tier(delay))

    def replay(self, topic: str) -> str:
        """The topic for what a person sent back."""
        return self.replay_pattern.format(topic=topic, group=self.group)

    def dead_letters(self, topic: str) -> str:
        """The topic for dead letters of `topic`."""
        return self.dead_letter_pattern.format(topic=topic, group=self.group)

    def clashes(self, topics: Iterable[str]) -> list[str]:
        """Faults that filling in the patterns would cause, a sentence each."""
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
        """What is wrong with the name of the topic of decisions."""
        if not _TOPIC.fullmatch(self.control):
            return f"kafka_control_topic: {topic_fault(self.control)}"
        if self.control in sources:
            return (
                f"topic {self.control!r} is consumed, but it is also where what is decided for the group lies: rename "
                "one, or change kafka_control_topic."
            )
        for source in sources:
            if self.control in (self.dead_letters(source), self.replay(source)):
                return (
                    f"what is decided for the group and records of {source!r} would both go to {self.control!r}: "
                    "change one of the kafka_*_topic patterns."
                )
        return None


_DEFAULTS = TopicNames("")


def name_faults(settings: Settings, topics: Collection[str]) -> list[str]:
    """What is wrong with the names of the topics that handlers have, and of those that `kafka_topics` has besides."""
    others = [topic for topic in settings.file.kafka_topics if topic not in topics]
    in_settings = [f"kafka_topics: {fault}" for topic in others if (fault := topic_fault(topic))]
    return [*TopicNames.of(settings).clashes(topics), *in_settings]


def topic_fault(name: str) -> str | None:
    """Why Kafka would never have a topic of this name, a sentence; `None` if it may.

    A name that begins with `^` is a pattern to librdkafka: what it matches would be consumed, and no handler named it.
    """
    if _TOPIC.fullmatch(name) and name not in (".", ".."):
        return None
    pattern = " It is no pattern either: name each topic." if name.startswith("^") else ""
    return (
        f"{name!r} is no name of a topic: Kafka takes 1 to {MAX_TOPIC_NAME} letters of A-Z, a-z, 0-9, '.', '_' "
        f"and '-'.{pattern}"
    )


def is_internal(name: str) -> bool:
    """Whether Kafka, or what is built on it, keeps its own state in a topic of this name."""
    return name.startswith("__")


def role_for_any_group(name: str, names: TopicNames) -> str:
    """Return what a topic of this name is to some consumer group of this project, by its name alone; "": nothing.

    What is written there acts: a control topic halts and resumes, retry and replay topics are handled. Groups are told
    by the default patterns and by the patterns of these settings.
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
    # A pattern without a word of its own would be every name.
    if not re.search("[A-Za-z]", re.sub(r"\{\w+\}", "", pattern)):
        return False
    anything = re.sub(r"\\\{(\w+)\\\}", lambda each: _FILLED.get(each[1], ".+"), re.escape(pattern))
    return re.fullmatch(anything, name) is not None


def tier(seconds: int) -> str:
    """A delay as it stands in a topic's name, in the largest unit that divides it.

    >>> tier(300), tier(3600), tier(45), tier(90)
    ('5m', '1h', '45s', '90s')
    """
    for unit, size in _UNITS:
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
