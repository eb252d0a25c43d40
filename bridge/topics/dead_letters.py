"""Dead letters read back: those of a group for one source topic."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bridge.records import dead_letter
from bridge.records.dead_letter import DeadLetter
from bridge.settings import Settings
from bridge.topics.extents import Extent, extents
from bridge.topics.names import TopicNames
from bridge.topics.readback import records


class DeadLetters(NamedTuple):
    """Dead letters as they are read, those of a partition in the order in which they were written.

    Attributes:
        letters: read from Kafka one by one; raises KafkaUnavailable when it does not answer.
        whole: whether Kafka has dropped none (retention).
    """

    letters: Iterator[DeadLetter]
    whole: bool


def where(settings: Settings, topics: Iterable[str]) -> dict[str, list[Extent]]:
    """By source topic, the partitions that its dead letters lie in; Kafka is asked once for all of them.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    named = {topic: TopicNames.of(settings).dead_letters(topic) for topic in topics}
    found: dict[str, list[Extent]] = {name: [] for name in named.values()}
    for each in extents(settings, found):
        found[each.topic].append(each)
    return {topic: found[name] for topic, name in named.items()}


def dead_letters(
    settings: Settings,
    topic: str,
    last: int | None = None,
    partition: int | None = None,
) -> DeadLetters:
    """The dead letters of this group for a source topic.

    Parameters:
        last: how many records of each partition are looked through, the latest; `None`: all.
        partition: that of the source, if only its dead letters are asked for.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    there = where(settings, [topic])[topic]
    if partition is not None:
        there = [each for each in there if each.partition == partition % len(there)]
    starts = {each.place: each.first if last is None else max(each.first, each.end - last) for each in there}
    ends = {each.place: each.end for each in there}
    read = map(dead_letter.read, records(settings, starts, ends))
    return DeadLetters(
        (found for found in read if found is not None and (found.group, found.topic) == (settings.group, topic)),
        whole=all(each.first == 0 for each in there),
    )
