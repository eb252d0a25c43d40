"""The Find page's query for a record, key, letter or plan, and its lookup in Kafka, ledger and database."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.masked_lists import MaskedLists
from bridge.deadletters.masking.text_redaction import HiddenQuotes
from bridge.deadletters.masking.value_mask import MASK
from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterLine
from bridge.errors import DeskUnavailable, FilterFault, KafkaUnavailable, LedgerUnavailable
from bridge.inspection.record_search import (
    SearchResult,
    describe_unread,
    find_record,
    find_records_at_time,
    find_records_by_key,
)
from bridge.inspection.status import redact_halt
from bridge.kafka.record_reader import ReadLimits

#: `orders-3-1234`, a task of it (`orders-3-1234:orders.handlers.charge#2`), or of a batch (`orders-3-1234..1240:…`).
_RECORD: Final = re.compile(
    r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d+)-(?P<offset>\d+)(?:\.\.\d+)?(?::(?P<handler>[\w.]+))?(?:#\d+)?",
    re.ASCII,
)
#: A date with a time: a key may be a date.
_TIME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?", re.ASCII | re.IGNORECASE
)
_PLAN: Final = re.compile(r"plan\s+(\d{1,18})", re.IGNORECASE)
#: The most digits of a number in Kafka or the database.
_DIGITS: Final = 18


class RecordQuery(NamedTuple):
    """A record by its coordinates; `handler`: the handler of its delivery, if one was named."""

    topic: str
    partition: int
    offset: int
    handler: str | None


class KeyQuery(NamedTuple):
    """A key, in a topic if one was named."""

    topic: str | None
    key: str


class TimeQuery(NamedTuple):
    """The records of a topic from a time on."""

    topic: str
    at: datetime


class LetterQuery(NamedTuple):
    """A letter by its number."""

    id: int


class PlanQuery(NamedTuple):
    """A plan by its number."""

    id: int


LookupQuery = RecordQuery | KeyQuery | TimeQuery | LetterQuery | PlanQuery


def parse_lookup_query(text: str, topics: Collection[str]) -> LookupQuery:
    """Return the query in a text; a text of no other form is a key.

    Parameters:
        text: stripped of surrounding spaces.
        topics: the topics of the group.
    """
    if match := _PLAN.fullmatch(text):
        return PlanQuery(int(match[1]))
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return LetterQuery(int(text))
    match = _RECORD.fullmatch(text)
    if match and max(len(match["partition"]), len(match["offset"])) <= _DIGITS:
        return RecordQuery(match["topic"], int(match["partition"]), int(match["offset"]), match["handler"])
    first, _, rest = text.partition(" ")
    if first in topics and rest.strip():
        at = _read_time(rest.strip())
        return KeyQuery(first, rest.strip()) if at is None else TimeQuery(first, at)
    return KeyQuery(None, text)


def _read_time(text: str) -> datetime | None:
    """Return the time in a text, in UTC unless it says another; `None` if it is none."""
    if not _TIME.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(text.upper())
        # At the ends of the calendar a time of another zone may be none in UTC.
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


#: By partition the offset below which a search by key goes on: `0:1200,3:77`.
_BELOW: Final = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18}){0,9999}", re.ASCII)


def read_below(text: str) -> dict[int, int]:
    """Return the offsets below which a search goes on; empty for an empty text.

    Raises:
        FilterFault: it is no such list.
    """
    if not text:
        return {}
    if not _BELOW.fullmatch(text):
        raise FilterFault("This is no place to search on from: send `below` of the answer before, unchanged.")
    return {int(partition): int(offset) for partition, offset in (each.split(":") for each in text.split(","))}


def mask_last_errors(deliveries: Iterable[Mapping[str, Any]], quotes: HiddenQuotes) -> list[dict[str, Any]]:
    """Return the deliveries of `bridge find`, with hidden values in their last errors masked."""
    return [
        {**delivery, "last_error": delivery["last_error"] and quotes.masked(str(delivery["last_error"]))}
        for delivery in deliveries
    ]


def describe_fate(deliveries: Collection[Mapping[str, Any]]) -> str:
    """Return the fates of a record in a few words: `is dead for 1 of 3 handlers`."""
    if not deliveries:
        return "is in Kafka, and no handler has its topic"
    fates = [delivery["fate"] for delivery in deliveries]
    for worst, words in (("dead", "is dead"), ("parked", "is parked"), ("handed", "is in flight"), ("open", "is open")):
        if count := fates.count(worst):
            return f"{words} for {count} of {len(fates)} handler{'' if len(fates) == 1 else 's'}"
    if len(set(fates)) == 1:
        return f"is {fates[0]} for {'its handler' if len(fates) == 1 else f'all {len(fates)} handlers'}"
    return "has ended for all handlers"


logger = logging.getLogger("bridge")

#: The most letters that are listed for a key.
MAX_FOUND_LETTERS: Final = 25
#: The most that one search by key reads of Kafka; it can be continued.
KEY_SEARCH: Final = ReadLimits(records=1_000_000, bytes=1_000_000_000, seconds=25)
#: The most records of a key that one search finds.
MAX_FOUND_RECORDS: Final = 200


@dataclass
class LookupAnswer:
    """The result of a lookup, and the places that were searched.

    Attributes:
        records: the data of `bridge find --json`.
        letters: dead letters of the database.
        looked: a sentence for each place that was searched, and how far.
        silent: a sentence for each server that did not respond and was not searched.
        below: if a limit ended the search: by partition the offset below which it goes on, as `read_below` takes it.
    """

    records: Sequence[dict[str, Any]] = ()
    letters: Sequence[LetterLine] = ()
    looked: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    below: str = ""

    @property
    def has_results(self) -> bool:
        """Return whether anything was found."""
        return bool(self.records or self.letters)


def look_up(
    desk: DeadLetterService,
    wanted: RecordQuery | KeyQuery | TimeQuery,
    answer: LookupAnswer,
    masks: LetterMasks,
    below: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Look for a record, a key or a time in Kafka, the ledger and the database; note the servers that do not respond.

    Parameters:
        below: by partition the offset below which a search by key goes on.
    """
    match wanted:
        case RecordQuery():
            _look_up_record(desk, wanted, answer)
        case TimeQuery(topic, at):
            _ask_ledger(
                desk,
                answer,
                lambda: find_records_at_time(desk.app, desk.settings, desk.routes, topic, at.isoformat()),
                topic,
            )
        case _:
            _look_up_key(desk, wanted, answer, masks, below)


def _look_up_record(desk: DeadLetterService, wanted: RecordQuery, answer: LookupAnswer) -> None:
    topic, partition, offset, _ = wanted
    _ask_ledger(
        desk, answer, lambda: find_record(desk.app, desk.settings, desk.routes, topic, partition, offset), topic
    )
    try:
        answer.letters = desk.letters.at(topic, partition, offset)
        answer.looked.append("The dead letters' database.")
    except DeskUnavailable as error:
        answer.silent.append(describe_missing_database(error))


def _look_up_key(
    desk: DeadLetterService, wanted: KeyQuery, answer: LookupAnswer, masks: LetterMasks, below: Mapping[int, int]
) -> None:
    topic, text = wanted
    if not masks.searches_keys(() if topic is None else (topic,)):
        answer.looked.append("No place: your role may not see the keys of this topic, so it may not search by key.")
        return
    if topic is not None:
        _ask_ledger(
            desk,
            answer,
            lambda: find_records_by_key(
                desk.app, desk.settings, desk.routes, topic, text, KEY_SEARCH, below, MAX_FOUND_RECORDS
            ),
            topic,
        )
    try:
        topics = () if topic is None else (topic,)
        answer.letters = desk.letters.page(
            LetterFilter(key=filter_syntax.parse_key(text), topics=topics), MAX_FOUND_LETTERS
        ).letters
        answer.looked.append("The dead letters' database, for letters with this key.")
    except FilterFault as error:
        answer.looked.append(str(error))
    except DeskUnavailable as error:
        answer.silent.append(describe_missing_database(error))


def find_scope_fault(desk: DeadLetterService, topic: str) -> str:
    """Return why the deliveries of a topic in the console's group are not shown; "" if they are."""
    if desk.scope.covers(topic, desk.settings.group):
        return ""
    return f"not known: your account does not see the topic {topic} in the consumer group {desk.settings.group}"


def describe_missing_database(error: DeskUnavailable) -> str:
    """Return a sentence for a database that does not respond; its address goes to the log alone."""
    logger.warning("%s", error)
    return "The dead letters' database does not respond: the log of bridge deadletters serve says which one, and why."


def mask_lookup_answer(lists: MaskedLists, answer: LookupAnswer) -> None:
    """Mask the values that the caller may not see."""
    letters, answer.letters = answer.letters, lists.lines(answer.letters)
    for result in answer.records:
        record = result["record"]
        fields = lists.masks.find_fields(record["topic"])
        if not fields:
            continue
        name = f"{record['topic']}-{record['partition']}-{record['offset']}"
        matching = [letter for letter in letters if letter.name in (name, f"{name}:{letter.handler}")]
        quotes = lists.quotes_of(record["topic"], matching)
        if record["key"] is not None and not quotes.unknown:
            record["key"] = quotes.masked(record["key"])
        if record["key"] is not None and fields.key:
            record["key"] = MASK
        result["deliveries"] = mask_last_errors(result["deliveries"], quotes)
        result["halted"] = result["halted"] and redact_halt(result["halted"])


def _ask_ledger(desk: DeadLetterService, answer: LookupAnswer, search: Callable[[], SearchResult], topic: str) -> None:
    """Search the ledger and Kafka, and add the result or the failure to the answer."""
    if not desk.scope.covers(topic, desk.settings.group):
        answer.looked.append(f"Neither Kafka nor the ledger: your account does not see the topic {topic}.")
        return
    if desk.settings.ledger_url is None:
        answer.silent.append("Fates are not known: no ledger is set, and the broker is no Redis. Set LEDGER_URL.")
        return
    try:
        result = search()
    except (KafkaUnavailable, LedgerUnavailable) as error:
        answer.silent.append(str(error))
        return
    answer.records = result.data
    answer.looked += _describe_searched(result, topic)
    if result.looked_from:
        left = {partition: result.looked_from.get(partition, first) for partition, (first, _) in result.kept.items()}
        answer.below = ",".join(f"{partition}:{offset}" for partition, offset in sorted(left.items()))
    if result.unreadable:
        answer.silent.append(describe_unread(result))


def _describe_searched(found: SearchResult, topic: str) -> list[str]:
    if not found.kept and not found.unreadable:
        return [f"Kafka, which has no topic {topic}."]
    sentences = [
        f"Kafka and the ledger: {topic}-{partition}, offsets {found.looked_from.get(partition, first):,} up to "
        f"{found.below.get(partition, end):,}."
        for partition, (first, end) in sorted(found.kept.items())
    ]
    if found.limit:
        sentences.append(f"The search ended at its limit of {found.limit}. Earlier records were not searched.")
    return sentences
