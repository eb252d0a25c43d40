"""The watch for transactions that stay open: Kafka returns no record behind their first one, and no error."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from bridge.formats.delivery_identity import Place
from bridge.jobs.group_facts import GroupFacts, format_record_count, format_since
from bridge.jobs.problem import Problem
from bridge.kafka.partition_offsets import END
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.transactions import OpenTransaction

logger = logging.getLogger(__name__)

#: Seconds without a record, although Kafka has more, before Kafka is asked about an open transaction; Kafka ends those
#: of a dead producer after a minute (transaction.timeout.ms).
HANGS_AFTER: Final = 90.0
_ADVICE: Final = "`kafka-transactions.sh find-hanging` names its producer, `kafka-transactions.sh abort` ends it"


class TransactionWatch:
    """The watch for partitions that a transaction holds back; each is logged once.

    Attributes:
        found: the open transactions that hold back partitions now.
    """

    def __init__(self, catalog: TopicCatalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._asking, self._clock = catalog.asking_stable(), clock
        self._since: dict[Place, tuple[int, float]] = {}
        self.found: dict[Place, OpenTransaction] = {}

    def poll(self, unread: Mapping[Place, tuple[int, int]]) -> None:
        """Check the partitions that have more than was read.

        Parameters:
            unread: the next offset to read of each, and one more than the last that Kafka has.
        """
        now = self._clock()
        self._since = {
            place: (offset, self._since[place][1] if self._since.get(place, (None, 0))[0] == offset else now)
            for place, (offset, _) in unread.items()
        }
        stable = self._asking.take_answer()
        known, self.found = self.found, {}
        for place, (offset, end) in unread.items():
            was = known.get(place)
            held = was is not None and was.offset == offset
            if stable is not None and place in stable:
                held = stable[place] == offset and self._is_old(place, now)
            if not held:
                continue
            age = now - self._since[place][1]
            self.found[place] = OpenTransaction(*place, offset, end - offset, time.time() - age)
            if was is None or was.offset != offset:
                logger.error(
                    "%s-%d: nothing was read for %.0f s, although Kafka has %d more records: the transaction that "
                    "began at offset %d is still open, and Kafka returns no record behind it. %s.",
                    *place,
                    age,
                    end - offset,
                    offset,
                    _ADVICE,
                )
        self._asking.ask_offsets({place: END for place in self._since if self._is_old(place, now)})

    def _is_old(self, place: Place, now: float) -> bool:
        return place in self._since and now - self._since[place][1] >= HANGS_AFTER


def find_held_back_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic that a transaction holds back, as bridges announce it."""
    by_topic: dict[str, list[OpenTransaction]] = {}
    for state in (facts.bridges or {}).values():
        for each in state.get("open_transactions", ()):
            found = OpenTransaction.from_announcement(each)
            by_topic.setdefault(found.topic, []).append(found)
    for topic, transactions in sorted(by_topic.items()):
        count, since = sum(each.records for each in transactions), min(each.since for each in transactions)
        transactions.sort(key=lambda each: each.partition)
        places = ", ".join(f"{topic}-{each.partition} from offset {each.offset} on" for each in transactions[:5])
        yield Problem(
            f"An open transaction holds back topic {topic!r}, {format_since(since, facts.now)}: Kafka withholds "
            f"{format_record_count(count)}, the transaction's own among them ({places}"
            f"{', …' if len(transactions) > 5 else ''}). {_ADVICE}.",
            "transaction",
            f"An open transaction holds back {topic!r}",
            topic=topic,
            since=since,
            many=count,
            of="records",
            do="`kafka-transactions.sh find-hanging`, then `abort`",
        )
