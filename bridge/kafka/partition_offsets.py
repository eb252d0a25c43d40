"""The offsets of partitions: their first, end and committed offsets, and the offset of a time."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.errors import KafkaUnavailable, NoMoment
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import (
    NO_LEADER,
    AdminClient,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    OffsetSpec,
    TopicPartition,
    admin_client,
    consumer_client,
    explain_error,
)
from bridge.kafka.topic_admin import ANSWER_WITHIN, read_cluster
from bridge.settings import Settings

#: The client's value for a missing offset: nothing is committed, or a request timed out.
OFFSET_INVALID: Final = -1001
#: In an answer about a time: no record has that time or a later one.
NO_SUCH_RECORD: Final = -1


def listed_offset(answer: Future[Any], *, of_a_time: bool = False) -> int:
    """Return the offset in an answer to ListOffsets; `NO_SUCH_RECORD` only if a time was asked for.

    A request that timed out ends without an error, and with the offset -1001 (RD_KAFKA_OFFSET_INVALID).

    Raises:
        KafkaUnavailable: the answer holds no offset.
        KafkaException: Kafka refused, or did not answer.
    """
    offset: Any = answer.result().offset
    if is_offset(offset) or (of_a_time and offset == NO_SUCH_RECORD):
        return int(offset)
    raise KafkaUnavailable(f"Kafka did not answer in time where a partition begins or ends (client: {offset}).")


def first_and_end(answer: Any) -> tuple[int, int]:
    """Return the first and end offset of a partition from the answer of `get_watermark_offsets`.

    Raises:
        KafkaUnavailable: the answer holds no offsets.
    """
    if answer is not None:
        first, end = answer
        if is_offset(first) and is_offset(end) and first <= end:
            return int(first), int(end)
    raise KafkaUnavailable(f"Kafka did not answer in time where a partition begins and ends (client: {answer}).")


def cached_first_and_end(answer: Any) -> tuple[int, int]:
    """Return the first and end offset of `get_watermark_offsets(cached=True)`; -1 if unknown."""
    first, end = answer if answer is not None else (-1, -1)
    return int(first) if is_offset(first) else -1, int(end) if is_offset(end) else -1


def committed_offset(partition: Any) -> int | None:
    """Return the offset in an answer of `committed`; `None` if the group has committed none.

    Raises:
        KafkaUnavailable: the answer holds no offset, and does not say that there is none.
    """
    if is_offset(partition.offset):
        return int(partition.offset)
    if partition.offset == OFFSET_INVALID:
        return None
    raise KafkaUnavailable(
        f"Kafka did not say what is committed of {partition.topic}-{partition.partition} (client: {partition.offset})."
    )


def is_offset(number: Any) -> bool:
    """Return whether a client's number is an offset, and not one of its values for an error."""
    return isinstance(number, int) and number >= 0


#: Asks for the end offset.
END: Final = None


class OffsetQuestion:
    """A request for offsets, one at a time; offsets that Kafka does not tell are left out."""

    def __init__(self, admin: AdminClient, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> None:
        self._admin, self._isolation = admin, isolation
        self._asked: dict[TopicPartition, Future[Any]] = {}
        self._of_times: frozenset[Place] = frozenset()

    def ask_offsets(self, places: Mapping[Place, float | None]) -> None:
        """Send the request, unless one is pending.

        Parameters:
            places: for each the Unix time of the first wanted record, or `END`.
        """
        if places and not self._asked:
            wanted = {TopicPartition(*place): _offset_spec(at) for place, at in places.items()}
            self._of_times = frozenset(place for place, at in places.items() if at is not END)
            options = {"isolation_level": self._isolation, "request_timeout": ANSWER_WITHIN}
            self._asked = dict(self._admin.list_offsets(wanted, **options))

    def take_answer(self) -> dict[Place, int] | None:
        """Return the answer once it is there; `None` until then. An offset of -1: there is no such record."""
        if not self._asked or not all(future.done() for future in self._asked.values()):
            return None
        asked, self._asked = self._asked, {}
        offsets = {}
        for partition, future in asked.items():
            place = (partition.topic, partition.partition)
            with suppress(KafkaException, KafkaUnavailable):
                offsets[place] = listed_offset(future, of_a_time=place in self._of_times)
        return offsets


def _offset_spec(at: float | None) -> OffsetSpec:
    made: OffsetSpec = OffsetSpec.latest() if at is END else OffsetSpec.for_timestamp(int(at * 1000))  # type: ignore[no-untyped-call]
    return made


#: Seconds for one request to Kafka.
EXTENT_ANSWER_WITHIN: Final = 10.0
#: Seconds in which a report waits for the leader of a partition that has none: a new one has it within a second.
LEADER_WITHIN: Final = 3.0
#: The same once one of the report's partitions had none.
FURTHER_LEADER_WITHIN: Final = 0.5
#: Errors of a group's coordinator that has just started or was just chosen; they end within seconds.
PASSING_ERRORS: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
)
#: Errors of a partition that was just created, or has a new leader.
MOVING_ERRORS: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
#: Seconds between two tries.
AGAIN_AFTER: Final = 0.3


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a partition.

    Attributes:
        first: the first offset that Kafka still has.
        end: one more than the last.
        committed: the group's, or `None` if it has committed nothing.
        epoch: the epoch of the ledger noted with the commit, or `None` if a bridge did not commit it.
        commit_mode: `handoff` or `completion`, as noted with the commit; `None`: not by a bridge, or by an older one.
    """

    topic: str
    partition: int
    first: int
    end: int
    committed: int | None
    epoch: str | None = None
    commit_mode: str | None = None

    @property
    def place(self) -> Place:
        """Return the topic and number of the partition."""
        return (self.topic, self.partition)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no offset to say anything of: none that Kafka has, none that is committed."""
        return self.first >= max(self.end, self.committed or 0)

    @property
    def lag(self) -> int:
        """Return the number of records between the committed offset and the end."""
        return max(0, self.end - max(self.first, self.committed or 0))


def make_unreadable_data(unreadable: Mapping[Place, str]) -> list[dict[str, Any]]:
    """Return the partitions that cannot be read, each with the reason, as JSON-able data (pure)."""
    return [{"topic": topic, "partition": number, "why": why} for (topic, number), why in sorted(unreadable.items())]


#: Reads the extents of topics: `read_extents`, which needs all of them, or that of an `ExtentReader`.
ExtentRead = Callable[[Settings, Iterable[str]], list[Extent]]


def commit_note(epoch: str | None, log: str = "", mode: str = "") -> str:
    """Return the metadata that a bridge commits with an offset: the ledger's epoch, the log's id, and `commit`."""
    return " ".join(f"{name}={value}" for name, value in (("ledger", epoch), ("log", log), ("commit", mode)) if value)


def noted_epoch(noted: str | None) -> str | None:
    """Return the ledger's epoch from a commit's metadata; `None` if a bridge did not commit it."""
    return _word("ledger", noted)


def noted_log(noted: str | None) -> str | None:
    """Return the id of the log from a commit's metadata; `None` if a bridge did not commit it."""
    return _word("log", noted)


def noted_commit_mode(noted: str | None) -> str | None:
    """Return `commit` from a commit's metadata; `None` if no bridge, or an older one, committed it."""
    return _word("commit", noted)


def _word(wanted: str, noted: str | None) -> str | None:
    words = (word.partition("=") for word in (noted or "").split())
    return next((value for name, _, value in words if name == wanted), None)


def read_extents(settings: Settings, topics: Iterable[str]) -> list[Extent]:
    """Return the extents of the partitions of these topics, in order; a missing topic has none.

    Raises:
        KafkaUnavailable: Kafka did not answer, or one of the partitions cannot be read.
    """
    extents, unreadable = _ask_extents(settings, topics, EXTENT_ANSWER_WITHIN)
    if unreadable:
        raise KafkaUnavailable(f"Kafka answers, and cannot read {'; '.join(group_unreadable(unreadable))}.")
    return extents


class ExtentReader:
    """A reader of extents for one report, which leaves out partitions that cannot be read, and names them.

    Attributes:
        unreadable: the partitions that were left out, each with the reason.
    """

    def __init__(self) -> None:
        self.unreadable: dict[Place, str] = {}

    def read(self, settings: Settings, topics: Iterable[str]) -> list[Extent]:
        """Return the extents of the partitions of these topics that can be read, in order.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        # A report waits once: what has no leader by then has none for the next question either.
        within = FURTHER_LEADER_WITHIN if self.unreadable else LEADER_WITHIN
        extents, unreadable = _ask_extents(settings, topics, within)
        self.unreadable.update(unreadable)
        return extents


def _ask_extents(
    settings: Settings, topics: Iterable[str], leader_within: float
) -> tuple[list[Extent], dict[Place, str]]:
    """Return the extents of the partitions that can be read, and why others cannot.

    Parameters:
        leader_within: seconds to wait for missing leaders.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    client = consumer_client(settings.kafka, settings.group)
    try:
        known = read_cluster(client).topics
        leaders = {
            (topic, number): partition.leader
            for topic in topics
            if topic in known
            for number, partition in sorted(known[topic].partitions.items())
        }
        places = [TopicPartition(*place) for place in leaders]
        committed = read_committed_offsets(client, places) if places else []
        return _read_extents(client, {(each.topic, each.partition): each for each in committed}, leaders, leader_within)
    except KafkaException as error:
        raise KafkaUnavailable(f"Kafka does not answer: {explain_error(error)}.") from None
    finally:
        client.close()


def _read_extents(
    client: Consumer, committed: Mapping[Place, Any], leaders: Mapping[Place, int], leader_within: float
) -> tuple[list[Extent], dict[Place, str]]:
    """Return the extents; a broker that does not answer, or a missing leader, is waited for once.

    Raises:
        KafkaUnavailable: no broker answered.
    """
    found: dict[Place, Extent] = {}
    unreadable: dict[Place, str] = {}
    silent: dict[int, str] = {}
    # Those without a leader last: they may have one by then.
    for place in sorted(leaders, key=lambda place: leaders[place] < 0):
        noted, leader = committed[place], leaders[place]
        if leader in silent:
            unreadable[place] = silent[leader]
            continue
        try:
            first, end = watermarks(client, noted, leader_within if leader < 0 else EXTENT_ANSWER_WITHIN)
        except (KafkaException, KafkaUnavailable) as error:
            # Kafka's client calls a partition without a leader unknown.
            unreadable[place] = NO_LEADER if leader < 0 else explain_error(error).rstrip(".")
            if leader < 0 or is_silence(error):
                silent[leader] = unreadable[place]
            continue
        notes = (noted_epoch(noted.metadata), noted_commit_mode(noted.metadata))
        found[place] = Extent(*place, first, end, committed_offset(noted), *notes)
    if leaders and all(leader >= 0 and leader in silent for leader in leaders.values()):
        raise KafkaUnavailable(f"Kafka does not answer: {next(iter(silent.values()))}.")
    return [found[place] for place in leaders if place in found], unreadable


def is_silence(error: Exception) -> bool:
    """Return whether an error says that a broker did not answer (pure)."""
    return isinstance(error, KafkaUnavailable) or error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


def group_unreadable(unreadable: Mapping[Place, str]) -> list[str]:
    """Return words such as `orders-2, orders-5: the partition has no leader` for each reason (pure)."""
    by_reason: dict[str, list[str]] = {}
    for (topic, number), why in sorted(unreadable.items()):
        by_reason.setdefault(why, []).append(f"{topic}-{number}")
    return [f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}: {why}" for why, names in by_reason.items()]


def starts_of_latest(extents: Sequence[Extent], partition: int, last: int) -> dict[Place, int]:
    """Return the offsets to read one of our topics from for the latest records of a source's partition (pure).

    They are written to `partition % count`, and partitions are added: earlier records are where a smaller count led.

    Parameters:
        extents: the partitions of the topic.
        last: how many records of the present partition are read; those of the earlier ones together are as many.
    """
    if not extents:
        return {}
    present = partition % len(extents)
    earlier = {partition % count for count in range(1, len(extents))} - {present}
    most = {number: max(1, last // len(earlier)) for number in earlier} | {present: last}
    return {
        extent.place: max(extent.first, extent.end - most[extent.partition])
        for extent in extents
        if extent.partition in most
    }


def watermarks(client: Consumer, place: TopicPartition, within: float = EXTENT_ANSWER_WITHIN) -> tuple[int, int]:
    """Return the first and end offset of a partition; retries while it has no leader after its creation or a move.

    Parameters:
        within: seconds for the answer, and for a leader.

    Raises:
        KafkaException, KafkaUnavailable: Kafka did not answer.
    """
    give_up = time.monotonic() + within
    while True:
        try:
            return first_and_end(client.get_watermark_offsets(place, timeout=within))
        except KafkaException as error:
            if error.args[0].code() not in MOVING_ERRORS or time.monotonic() > give_up:
                raise
        time.sleep(AGAIN_AFTER)


def read_committed_offsets(client: Consumer, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the group's committed offsets; retries while the coordinator starts."""
    give_up = time.monotonic() + EXTENT_ANSWER_WITHIN
    while True:
        try:
            committed = client.committed(list(places), timeout=EXTENT_ANSWER_WITHIN)
            refused = next((place.error for place in committed if place.error is not None), None)
            if refused is None:
                return committed
            raise KafkaException(refused)
        except KafkaException as error:
            if error.args[0].code() not in PASSING_ERRORS or time.monotonic() > give_up:
                raise
        time.sleep(AGAIN_AFTER)


#: Seconds for Kafka's answer; the client must live until then.
MOMENT_ANSWER_WITHIN: Final = 10.0


def find_offsets_at(settings: Settings, extents: Sequence[Extent], moment: str) -> dict[int, int]:
    """Return the offset of each partition at a moment, within its first and end offset.

    Parameters:
        extents: the partitions of one topic.
        moment: `earliest`, `latest`, an offset, or a time as ISO 8601: the first record of that time or later.

    Raises:
        NoMoment: `moment` is none of these.
        KafkaUnavailable: Kafka did not answer.
    """
    if moment == "earliest":
        return {extent.partition: extent.first for extent in extents}
    if moment == "latest":
        return {extent.partition: extent.end for extent in extents}
    if moment.isdecimal():
        return {extent.partition: min(max(int(moment), extent.first), extent.end) for extent in extents}
    try:
        time = int(datetime.fromisoformat(moment).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise NoMoment(f"{moment!r} is no offset, no time (2026-01-31T12:00), neither earliest nor latest.") from None
    # Kafka's times begin in 1970: a negative one asks for something else.
    return _find_offsets_at_time(settings, extents, moment, max(0, time))


def _find_offsets_at_time(settings: Settings, extents: Sequence[Extent], moment: str, time: int) -> dict[int, int]:
    asked = {TopicPartition(extent.topic, extent.partition): OffsetSpec.for_timestamp(time) for extent in extents}
    ends = {extent.partition: extent.end for extent in extents}
    admin = admin_client(settings.kafka)
    try:
        answers = admin.list_offsets(asked, request_timeout=MOMENT_ANSWER_WITHIN)
        if wait(answers.values(), MOMENT_ANSWER_WITHIN * 2).not_done:
            raise KafkaUnavailable(f"no answer within {MOMENT_ANSWER_WITHIN * 2:g} s")
        offsets = {place.partition: listed_offset(future, of_a_time=True) for place, future in answers.items()}
    except (KafkaException, KafkaUnavailable) as error:
        raise KafkaUnavailable(f"Kafka did not tell the offsets of {moment}: {explain_error(error)}.") from None
    return {partition: ends[partition] if offset == NO_SUCH_RECORD else offset for partition, offset in offsets.items()}
