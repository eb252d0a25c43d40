"""Offsets that Kafka is asked for without waiting for the answer: where partitions end, or stood at some time."""

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import AdminClient, IsolationLevel, KafkaException, OffsetSpec, TopicPartition
from bridge.records.place import Place
from bridge.topics.cluster import ANSWER_WITHIN
from bridge.topics.offset_answers import listed_offset

#: Of what is asked, the end.
END: Final = None


class Asking:
    """One question at a time; what Kafka does not tell is left out, and nothing is to rest on that."""

    def __init__(self, admin: AdminClient, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> None:
        self._admin, self._isolation = admin, isolation
        self._asked: dict[TopicPartition, Future[Any]] = {}
        self._of_times: frozenset[Place] = frozenset()

    def ask(self, places: Mapping[Place, float | None]) -> None:
        """Ask, unless an answer is waited for still.

        Parameters:
            places: for each the Unix time from which on the first record is asked for, or `END`.
        """
        if places and not self._asked:
            wanted = {TopicPartition(*place): _spec(at) for place, at in places.items()}
            self._of_times = frozenset(place for place, at in places.items() if at is not END)
            options = {"isolation_level": self._isolation, "request_timeout": ANSWER_WITHIN}
            self._asked = dict(self._admin.list_offsets(wanted, **options))

    def told(self) -> dict[Place, int] | None:
        """The answer, once it is there; `None` until then. An offset of -1: there is no such record."""
        if not self._asked or not all(future.done() for future in self._asked.values()):
            return None
        asked, self._asked = self._asked, {}
        found = {}
        for partition, future in asked.items():
            place = (partition.topic, partition.partition)
            with suppress(KafkaException, KafkaUnavailable):
                found[place] = listed_offset(future, of_a_time=place in self._of_times)
        return found


def _spec(at: float | None) -> OffsetSpec:
    made: OffsetSpec = OffsetSpec.latest() if at is END else OffsetSpec.for_timestamp(int(at * 1000))  # type: ignore[no-untyped-call]
    return made
