"""Dead letters read from their Kafka topics, without the database."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import Final, NamedTuple

from bridge.deadletters.model.letter_filter import LetterFilter, accepts_letter, check_topic_filter
from bridge.deadletters.model.letter_parser import OURS, parse_letter
from bridge.deadletters.model.letter_view import LetterLine, LetterView
from bridge.deadletters.model.stored_letter import LetterStatus, StoredLetter
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_names import TopicNames
from bridge.settings import Settings

#: Number of the latest records of each partition that are read by default.
LAST: Final = 2_000


class TopicLetters(NamedTuple):
    """The letters that were found in topics.

    Attributes:
        letters: newest first.
        looked_from: the partitions that were not read in full, with the first offset that was read.
        missing: named dead-letter topics that do not exist.
    """

    letters: list[LetterLine]
    looked_from: Mapping[Place, int]
    missing: tuple[str, ...]


def find_topic_letters(
    settings: Settings,
    routes: Routes,
    filter_: LetterFilter,
    last: int = LAST,
    most: int | None = None,
    topics: Sequence[str] = (),
) -> TopicLetters:
    """Return the letters of a filter from the handlers' dead-letter topics.

    Parameters:
        last: the number of the latest records of each partition that are read.
        most: the most letters; `None`: all.
        topics: dead-letter topics to read instead.

    Raises:
        FilterFault: it has a field that only the database knows.
        KafkaUnavailable: Kafka did not answer.
    """
    check_topic_filter(filter_)
    names, sources = TopicNames.from_settings(settings), filter_.topics or routes.topics
    wanted = topics or sorted({names.dead_letters(source) for source in sources})
    there = read_extents(settings, wanted)
    starts = {each.place: max(each.first, each.end - last) for each in there}
    found = (
        build_letter_line(each) for each in _parse_letters(settings, there, starts) if accepts_letter(filter_, each)
    )
    newest = sorted(found, key=_letter_age, reverse=True) if most is None else nlargest(most, found, key=_letter_age)
    return TopicLetters(
        newest,
        {each.place: starts[each.place] for each in there if starts[each.place] > each.first},
        tuple(sorted(set(wanted) - {each.topic for each in there})) if topics or filter_.topics else (),
    )


def read_topic_letters(
    settings: Settings, topic: str, partition: int, offset: int, handler: str | None = None, last: int = LAST
) -> list[LetterView]:
    """Return the letters of a source record, the newest of each handler; or the letter at an offset of a dead-letter
    topic.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    dead_letters = read_extents(settings, [TopicNames.from_settings(settings).dead_letters(topic)])
    if not dead_letters:
        there = [each for each in read_extents(settings, [topic]) if each.partition == partition]
        there = [replace(each, end=offset + 1) for each in there if each.first <= offset < each.end]
        return [
            build_letter_view(each)
            for each in _parse_letters(settings, there, dict.fromkeys((each.place for each in there), offset))
        ]
    starts = {each.place: max(each.first, each.end - last) for each in dead_letters}
    found: dict[str, StoredLetter] = {}
    for letter in _parse_letters(settings, dead_letters, starts):
        whose = letter.identity
        if (whose.topic, whose.partition, whose.offset) == (topic, partition, offset):
            found[whose.handler] = letter
    return [build_letter_view(letter) for whose, letter in sorted(found.items()) if handler in (None, whose)]


def fetch_letter_value(settings: Settings, letter: LetterView) -> LetterView:
    """Return a letter with its value, read from Kafka if it is too large for the database; without it if it is gone.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    if letter.kept:
        return letter
    topic, partition, offset = letter.where.rsplit("-", 2)
    found = _read_record(settings, topic, int(partition), int(offset))
    return (
        letter if found is None or not _is_record_of(letter, found) else replace(letter, value=found.value(), kept=True)
    )


def _read_record(settings: Settings, topic: str, partition: int, offset: int) -> Record | None:
    there = [each for each in read_extents(settings, [topic]) if each.partition == partition]
    if not any(each.first <= offset < each.end for each in there):
        return None
    place = (topic, partition)
    found = read_records(settings, {place: offset}, {place: offset + 1})
    return next((record for record in found if record.offset() == offset), None)


def _is_record_of(letter: LetterView, record: Record) -> bool:
    """Return whether a record is a letter's: a recreated topic has others at the same offsets (pure)."""
    it, found = letter.listed, parse_letter(record, letter.topic_id, 0)
    there = (*found.identity[2:5], found.number, found.key, found.headers, found.value_size)
    return there == (letter.topic_id, it.partition, it.offset, letter.number, it.key, letter.headers, it.value_size)


def _parse_letters(settings: Settings, there: Sequence[Extent], starts: Mapping[Place, int]) -> Iterator[StoredLetter]:
    """Yield the letters of this group and of other programs."""
    now = int(time.time() * 1000)
    for record in read_records(settings, starts, {extent.place: extent.end for extent in there}):
        letter = parse_letter(record, "", now)
        if letter.kind.origin != OURS or letter.kind.consumer_group == settings.group:
            yield letter


def _letter_age(letter: LetterLine) -> tuple[int, str, int, int]:
    return letter.failed_at, letter.topic, letter.partition, letter.offset


def build_letter_line(letter: StoredLetter) -> LetterLine:
    """Return a letter as a line of a list; ids of the database are 0."""
    kind = letter.kind
    return LetterLine(
        id=0,
        handler=kind.group.handler,
        error_class=kind.group.error_class,
        place=kind.group.place,
        **{name: getattr(kind, name) for name in ("topic", "reason", "version", "origin", "consumer_group")},
        partition=letter.identity.partition,
        offset=letter.identity.offset,
        **{name: getattr(letter, name) for name in ("key", "error_message", "runs", "failed_at", "value_size")},
        status=LetterStatus.OPEN,
        group=0,
        failures=letter.attempts.replayed + 1,
        occurrences=1,
        plan=None,
        lost=letter.attempts.lost,
    )


def build_letter_view(letter: StoredLetter) -> LetterView:
    """Return a letter in full, as far as its record says."""
    same = ("timestamp", "value", "headers", "number", "attempts", "traceback", "first_failed_at", "trace")
    return LetterView(
        **{name: getattr(letter, name) for name in same},
        listed=build_letter_line(letter),
        made=letter.history,
        status_at=letter.failed_at,
        topic_id=letter.identity.topic_id,
        kept=True,
        recorded_at=letter.failed_at,
        where=f"{letter.topic}-{letter.partition}-{letter.offset}",
        history=(),
        plans=(),
        edits=(),
        trail=(),
    )
