"""The partitions that each turn of the loop goes over: those that hold something, and no others."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.backpressure.pause_applier import PauseApplier
from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.periodic_jobs import QuietPartitions
from bridge.consumer.wiring import ConsumerParts
from bridge.dispatch.fate_sync import read_handed_fates
from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.formats.pause_reasons import PauseReason
from bridge.handler_routes import Handler
from bridge.jobs import backlog
from bridge.jobs.timetable import Timetable
from bridge.ledger import RETRY_RECORD, Fate
from bridge.partitions.assignment import Assignment
from bridge.partitions.ordering import Portion
from bridge.partitions.partition import Partition
from bridge.partitions.partition_limits import HeldBytesLimit
from bridge.partitions.retry_partition import RetryPartition
from bridge.settings import TopicSettings
from tests.hypothesis_profiles import examples
from tests.unit.test_retry_partition import CHARGE, World, record

MANY = 500


def assigned(**chosen: object) -> Assignment:
    """Many begun partitions of a source topic, and as many of a retry topic."""
    topic = TopicSettings.model_validate(chosen)
    parts: Any = SimpleNamespace(
        topic=lambda _: topic, group="bridge", file=SimpleNamespace(kafka_window=100_000), kafka={}
    )
    routes: Any = SimpleNamespace(of=lambda _: [Handler(CHARGE, ("orders",), "celery", 10, 0)])
    belongs = SimpleNamespace(source="orders", delay=60)
    catalog: Any = SimpleNamespace(
        belonging=lambda name: None if name == "orders" else belongs, id_of=lambda _: "id", cluster="cluster"
    )
    made = Assignment(parts, routes, catalog, None, lambda: 1_000.0)
    for name in ("orders", "orders.retry.1m"):
        for number in range(MANY):
            made.add_place((name, number))
            made.begin((name, number), 0, 0, None)
    return made


def records(*offsets: int) -> list[Record]:
    return [
        Record(topic="orders", partition=7, offset=offset, key=None, value=b"v", headers=[], timestamp=(1, 5))
        for offset in offsets
    ]


def test_a_partition_is_busy_from_its_first_record_until_all_is_handed_off_and_safe() -> None:
    made = assigned()
    assert (made.busy, len(made.partitions), len(made.parked)) == ([], 2 * MANY, MANY)
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(0, 1), {CHARGE: bytes(2)})
    assert (made.busy, made.busy_parked) == ([one], [])
    (group,) = [group for group, _ in one.take()]
    one.note_handed(group.handler, group.offsets)
    assert made.busy == [one]
    assert one.safe() == 2
    assert made.busy == []


def test_with_completion_a_partition_is_busy_until_all_of_it_is_settled() -> None:
    made = assigned(commit="completion")
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(0), {CHARGE: bytes(1)})
    one.take()
    one.note_handed(CHARGE, [0])
    one.safe()
    assert [each for each in made.busy if each.watched] == [one]
    one.take_in_fates(CHARGE, 0, bytes([Fate.DONE]))
    one.safe()
    assert made.busy == []


@pytest.mark.parametrize(
    ("chosen", "awaited"),
    [({"commit": "completion"}, False), ({"commit": "completion", "order": "key"}, True)],
    ids=["any order", "by key"],
)
def test_the_fates_of_a_partition_are_polled_often_only_if_deliveries_may_wait_for_them(
    chosen: dict[str, object], awaited: bool
) -> None:
    made = assigned(**chosen)
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(0), {CHARGE: bytes(1)})
    assert (one.watched, one.awaited) == (True, awaited)


class _Asked:
    """A ledger in which all is as it was, which notes what it is asked for."""

    def __init__(self) -> None:
        self.spans: list[range] = []

    def fates_many(self, questions: Any) -> list[bytes]:
        self.spans = [range(first, last + 1) for _, first, last in questions]
        return [bytes([Fate.HANDED]) + bytes([Fate.DONE]) * (last - first) for _, first, last in questions]


def test_of_a_long_window_with_one_unsettled_delivery_only_that_is_read_until_the_next_commit() -> None:
    made = assigned(commit="completion", order="key")
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(*range(5_000)), {CHARGE: bytes([Fate.HANDED]) + bytes([Fate.DONE]) * 4_999})
    ledger: Any = _Asked()
    read_handed_fates(ledger, [one], awaited=True)
    assert ledger.spans == [range(1)]
    read_handed_fates(ledger, [one])
    assert ledger.spans == [range(5_000)]


def test_a_partition_that_starts_anew_is_busy_in_its_new_state_alone() -> None:
    made = assigned()
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(0), {CHARGE: bytes(1)})
    made.restart(("orders", 7), 0)
    assert one not in made.busy
    assert made.get_partition(("orders", 7)) in made.partitions
    made.remove([("orders", 7), ("orders.retry.1m", 3)])
    assert (len(made.partitions), len(made.parked)) == (2 * MANY - 2, MANY - 1)


def test_pauses_ask_only_busy_partitions_and_a_paused_one_is_busy_until_it_resumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Partition] = []
    for kind in (Partition, RetryPartition):

        def ask(partition: Any, share: float, pressure: Any = kind.pressure) -> Any:
            asked.append(partition)
            return pressure(partition, share)

        monkeypatch.setattr(kind, "pressure", ask)
    made = assigned()
    consumer: Any = SimpleNamespace(paused=[], resumed=[])
    consumer.pause = lambda places: consumer.paused.extend((each.topic, each.partition) for each in places)
    consumer.resume = lambda places: consumer.resumed.extend((each.topic, each.partition) for each in places)
    nothing: Any = SimpleNamespace(pauses=lambda _: {})
    pauses = PauseApplier(made, nothing, BridgeMetrics())
    pauses.apply(consumer, [], blocked=False)
    assert asked == []
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(*range(10_001)), {CHARGE: bytes(10_001)})
    pauses.apply(consumer, [], blocked=False)
    assert (consumer.paused, pauses.reasons) == ([one.place], {one.place: PauseReason.QUEUE_SATISFIED})
    for group, _ in one.take():
        one.note_handed(group.handler, group.offsets)
    one.safe()
    assert made.busy == [one]
    pauses.apply(consumer, [], blocked=False)
    assert (consumer.resumed, made.busy, {*asked}) == ([one.place], [], {one})


def test_partitions_that_together_hold_more_than_the_bridge_may_pause_and_one_that_holds_less_does_not() -> None:
    made = assigned()
    consumer: Any = SimpleNamespace(pause=lambda _: None, resume=lambda _: None)
    nothing: Any = SimpleNamespace(pauses=lambda _: {})
    few, many = made.get_partition(("orders", 0)), [made.get_partition(("orders", number)) for number in range(1, 21)]
    made.note_read([partition.place for partition in (few, *many)])
    few.receive(records(0), {CHARGE: bytes(1)})
    for partition in many:
        partition.receive(records(*range(100)), {CHARGE: bytes(100)})
    limit = HeldBytesLimit(few.held_bytes * 1_000)
    pauses = PauseApplier(made, nothing, BridgeMetrics(), held=limit)
    pauses.apply(consumer, [], blocked=False)
    assert pauses.reasons == {partition.place: PauseReason.MEMORY_FULL for partition in many}
    for partition in many:
        for group, _ in partition.take():
            partition.note_handed(group.handler, group.offsets)
    pauses.apply(consumer, [], blocked=False)
    assert pauses.reasons == {}


class Client:
    """Kafka's client, which has fetched all of a retry topic but for one partition, and knows nothing of two."""

    def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
        assert cached
        if place.partition == 3:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return (0, {4: 1, 5: -1001}.get(place.partition, 0))


def test_kafka_is_asked_every_5_s_about_partitions_with_anything_new_and_every_30_s_about_all() -> None:
    made, now = assigned(), 0.0
    client: Any = Client()
    reads: Any = SimpleNamespace(assignment=made, pauses=SimpleNamespace(reasons={("orders.retry.1m", 6): "halted"}))
    quiet = QuietPartitions(client, reads, Timetable(lambda: now))
    one = made.get_partition(("orders.retry.1m", 7))
    made.note_read([one.place])
    one.receive([record(0, 1_500.0)], {RETRY_RECORD: bytes(1)})
    seen = []
    for _ in range(13):
        seen.append(quiet.find_ends())
        now += 5
    assert [len(ends) for ends in seen] == [0, *([MANY - 5] * 5), 0, *([MANY - 5] * 5), 0]
    asked = {place for place in made if place not in seen[1]}
    assert asked == {*(("orders", n) for n in range(MANY)), *(("orders.retry.1m", n) for n in (3, 4, 5, 6, 7))}
    assert {*seen[1].values()} == {0}


def test_what_is_due_is_counted_in_partitions_that_hold_something_and_those_with_unread_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, asked = assigned(), list[Partition]()
    count = backlog._count_due

    def ask(partition: Partition, *rest: Any) -> Any:
        asked.append(partition)
        return count(partition, *rest)

    monkeypatch.setattr(backlog, "_count_due", ask)
    routes: Any = SimpleNamespace(of=lambda _: [Handler(CHARGE, ("orders",), "celery", 10, 0)])
    setup = SimpleNamespace(
        decisions=SimpleNamespace(halts=()),
        kafka=SimpleNamespace(ripe={("orders.retry.1m", 1): 30, ("orders.retry.1m", 2): 0}, ends={("orders", 9): 5}),
        broker=SimpleNamespace(queue_of=lambda _: "celery"),
        routes=routes,
    )
    parts: Any = SimpleNamespace(setup=setup, assignment=made, suspended=SuspendedHandlers())
    one = made.get_partition(("orders", 7))
    made.note_read([one.place])
    one.receive(records(0, 1), {CHARGE: bytes(2)})
    unread = ConsumerParts.unread.fget(parts)  # type: ignore[attr-defined]
    assert unread == {("orders", 9): 5}
    assert ConsumerParts.count_due(parts, unread) == {"celery": {CHARGE: 2 + 5 + 30}}
    assert {each.place for each in asked} == {("orders", 7), ("orders", 9), ("orders.retry.1m", 1)}


class Story:
    """What may happen to a retry partition, by name."""

    def __init__(self) -> None:
        self.world, self.end, self.taken = World(60), 0, list[tuple[str, list[int]]]()
        self.partition = self.world.partition

    def receive(self, number: int) -> None:
        self.end = self.end if self.partition.rewind is None else self.partition.rewind
        self.partition.end_rewind()
        offsets = range(self.end, self.end + number)
        self.world.receive(
            *(record(at, self.world.now + number % 70, "shop.gone" if number % 5 == 0 else CHARGE) for at in offsets)
        )
        self.end = offsets.stop

    def later(self, number: int) -> None:
        self.world.now += number / 10

    def take(self, number: int) -> None:
        portion = Portion(9, 9, number)
        self.taken += [(group.handler, group.offsets) for group, _ in self.partition.take({CHARGE: portion})]

    def give_back(self, _: int) -> None:
        if self.taken:
            self.partition.give_back(*self.taken.pop())

    def hand(self, _: int) -> None:
        if self.taken:
            self.partition.note_handed(*self.taken.pop(0))

    def settle(self, _: int) -> None:
        if self.partition.offsets.size and not self.taken:
            self.partition.settle(RETRY_RECORD, [self.partition.offsets.window.start], Fate.DONE)

    def commit(self, _: int) -> None:
        self.partition.safe()

    def pause(self, _: int) -> None:
        self.partition.pressure()

    def buffer(self, number: int) -> None:
        self.partition.note_untaken(number % 3)


_ACTS = ("receive", "receive", "later", "take", "give_back", "hand", "settle", "commit", "pause", "buffer")


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.sampled_from(_ACTS), st.integers(0, 400)), max_size=40))
def test_an_idle_retry_partition_has_nothing_that_a_turn_of_the_loop_would_find(steps: list[tuple[str, int]]) -> None:
    story = Story()
    partition = story.partition
    for act, number in steps:
        getattr(story, act)(number)
        if partition.idle:
            seen = (partition.rewind, partition.next_due, partition.ripe, partition.watched, partition.ready)
            assert seen == (None, None, False, False, {})
            assert (partition.measure_late(), partition.pressure(), partition.rewind, partition.oldest()) == (
                0.0,
                None,
                None,
                [],
            )
