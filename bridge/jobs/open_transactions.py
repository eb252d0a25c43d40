"""Open producer transactions, after whose first record Kafka returns nothing: one query, and a watch for those that
stay open.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.jobs.group_facts import GroupFacts, format_record_count, format_since
from bridge.kafka.clients import IsolationLevel, KafkaException, OffsetSpec, TopicPartition, admin_client, explain_error
from bridge.kafka.partition_offsets import END, listed_offset
from bridge.kafka.topic_admin import ANSWER_WITHIN
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.problems.problem import Problem, make_problem
from bridge.problems.topic_problem_rows import TRANSACTION_OPEN
from bridge.settings import Settings

logger = logging.getLogger(__name__)


class OpenTransaction(NamedTuple):
    """An open transaction that holds back a partition.

    Attributes:
        offset: the first record that no consumer gets.
        records: how many offsets are held back.
        since: when it was first seen to hold back (Unix time); 0: it was first seen now.
    """

    topic: str
    partition: int
    offset: int
    records: int
    since: float = 0.0

    @classmethod
    def from_announcement(cls, announced: Mapping[str, Any]) -> Self:
        """Return the transaction from a bridge's announcement."""
        names = ("topic", "partition", "offset", "count", "since")
        return cls(*(announced[name] for name in names))

    def to_data(self) -> dict[str, Any]:
        """Return the transaction as a bridge announces it."""
        return dict(zip(("topic", "partition", "offset", "count", "since"), self, strict=True))


def find_open_transactions(settings: Settings, places: Iterable[Place]) -> list[OpenTransaction]:
    """Return the partitions of which Kafka has more records than consumers get at this moment.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    wanted = [TopicPartition(*place) for place in places]
    if not wanted:
        return []
    admin = admin_client(settings.kafka)

    def ends(isolation: IsolationLevel) -> dict[Place, int]:
        asked = admin.list_offsets(
            {place: OffsetSpec.latest() for place in wanted},  # type: ignore[no-untyped-call]
            isolation_level=isolation,
            request_timeout=ANSWER_WITHIN,
        )
        return {(place.topic, place.partition): listed_offset(future) for place, future in asked.items()}

    try:
        # In this order: records written in between must not seem held back.
        all_of_it, stable = ends(IsolationLevel.READ_UNCOMMITTED), ends(IsolationLevel.READ_COMMITTED)
    except KafkaException as error:
        raise KafkaUnavailable(f"Kafka did not give the ends of partitions: {explain_error(error)}.") from None
    return [
        OpenTransaction(*place, stable[place], end - stable[place])
        for place, end in sorted(all_of_it.items())
        if stable[place] < end
    ]


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
        yield make_problem(
            TRANSACTION_OPEN,
            topic=topic,
            since=since,
            many=count,
            began=format_since(since, facts.now),
            records=format_record_count(count),
            places=f"{places}{', …' if len(transactions) > 5 else ''}",
            advice=_ADVICE,
        )
