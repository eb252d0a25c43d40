"""Where a record is now, or a key: looked for in Kafka, the ledger and the database, with what does not answer."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.commands.find import Found, find, find_key
from bridge.commands.unquoted import unquoted_halt
from bridge.deadletters.desk import Desk
from bridge.deadletters.letters import written
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.masking.hidden import MASK
from bridge.deadletters.masking.lists import Lists
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.questions.shown import Listed
from bridge.errors import DeskUnavailable, FilterFault, KafkaUnavailable, LedgerUnavailable
from bridge.web import finding

logger = logging.getLogger("bridge")

#: Letters of a key that are listed.
LETTERS: Final = 25


@dataclass
class Answer:
    """What was found, and where it was looked.

    Attributes:
        records: as `bridge find --json` has them.
        letters: of the database.
        looked: where it was looked for, and how far, a sentence each.
        silent: what does not answer, so that it was not looked for there.
    """

    records: Sequence[dict[str, Any]] = ()
    letters: Sequence[Listed] = ()
    looked: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def found(self) -> bool:
        """Whether there is anything."""
        return bool(self.records or self.letters)


def look(desk: Desk, wanted: finding.Record | finding.Key, answer: Answer, masks: Masks) -> None:
    """Look for a record, or a key, in Kafka, the ledger and the database; what does not answer is said."""
    if isinstance(wanted, finding.Record):
        _look_for_record(desk, wanted, answer)
    else:
        _look_for_key(desk, wanted, answer, masks)


def _look_for_record(desk: Desk, wanted: finding.Record, answer: Answer) -> None:
    topic, partition, offset, _ = wanted
    _ask(desk, answer, lambda: find(desk.app, desk.settings, desk.routes, topic, partition, offset), topic)
    try:
        answer.letters = desk.letters.at(topic, partition, offset)
        answer.looked.append("The dead letters' database.")
    except DeskUnavailable as error:
        answer.silent.append(no_database(error))


def _look_for_key(desk: Desk, wanted: finding.Key, answer: Answer, masks: Masks) -> None:
    topic, text = wanted
    if not masks.searches_keys(() if topic is None else (topic,)):
        answer.looked.append("Nowhere: your role does not see keys there, so nothing is looked for by one.")
        return
    if topic is not None:
        _ask(desk, answer, lambda: find_key(desk.app, desk.settings, desk.routes, topic, text), topic)
    try:
        topics = () if topic is None else (topic,)
        answer.letters = desk.letters.page(Filter(key=written.key(text), topics=topics), LETTERS).letters
        answer.looked.append("The dead letters' database, for letters with this key.")
    except FilterFault as error:
        answer.looked.append(str(error))
    except DeskUnavailable as error:
        answer.silent.append(no_database(error))


def no_database(error: DeskUnavailable) -> str:
    """A database that does not answer, for whoever looks: where it is stands in the log alone."""
    logger.warning("%s", error)
    return "The dead letters' database does not answer: the log of bridge deadletters serve says which one, and why."


def mask(lists: Lists, answer: Answer) -> None:
    """Put masks in the places of what who asks does not see."""
    letters, answer.letters = answer.letters, lists.lines(answer.letters)
    for found in answer.records:
        record = found["record"]
        fields = lists.masks.of(record["topic"])
        if not fields:
            continue
        name = f"{record['topic']}-{record['partition']}-{record['offset']}"
        mine = [each for each in letters if each.name in (name, f"{name}:{each.handler}")]
        known = lists.quotes_of(record["topic"], mine)
        if record["key"] is not None and not known.unknown:
            record["key"] = known.masked(record["key"])
        if record["key"] is not None and fields.key:
            record["key"] = MASK
        found["deliveries"] = finding.unquoted(found["deliveries"], known)
        found["halted"] = found["halted"] and unquoted_halt(found["halted"])


def _ask(desk: Desk, answer: Answer, question: Callable[[], Found], topic: str) -> None:
    """Ask ledger and Kafka."""
    if desk.settings.ledger_url is None:
        answer.silent.append("Fates are in the ledger, and the broker is no Redis: set LEDGER_URL.")
        return
    try:
        found = question()
    except (KafkaUnavailable, LedgerUnavailable) as error:
        answer.silent.append(str(error))
        return
    answer.records = found.data
    answer.looked += _looked(found, topic)


def _looked(found: Found, topic: str) -> list[str]:
    if not found.kept:
        return [f"Kafka: it has no topic {topic}."]
    return [
        f"Kafka and the ledger: {topic}-{partition}, offsets {found.looked_from.get(partition, first):,} up to {end:,}."
        for partition, (first, end) in sorted(found.kept.items())
    ]
