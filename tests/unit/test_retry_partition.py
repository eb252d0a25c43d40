"""A partition of a retry topic: what goes out when, with what, and what is left behind."""

from typing import Any

import pytest
from confluent_kafka import Message as Record

from bridge.dispatch.celery_message import pack_group
from bridge.dispatch.source_record_check import SourceRecordCheck, leave_out_ended
from bridge.errors import LedgerUnavailable
from bridge.formats.celery_header import from_header
from bridge.formats.delivery import Delivery, Message
from bridge.formats.pause_reasons import PauseReason
from bridge.formats.retry_record import retry_headers
from bridge.ledger import RETRY_RECORD, Account, Fate, KnownLog, Mark
from bridge.partitions import retry_read_ahead, slow_handlers
from bridge.partitions.ordering import Portion
from bridge.partitions.retry_partition import RefusalLog, RetryPartition, RetryTopicOwner
from bridge.partitions.retry_read_ahead import FAR, LOW, MOST, ReadAheadBudget
from bridge.partitions.slow_handlers import KEPT, STILL
from bridge.settings import TopicSettings
from tests.memory_ledger import MemoryLedger

CHARGE, NOTIFY = "shop.charge", "shop.notify"
TIER = "orders.retry.1m"


class World:
    """A partition with a clock that a test sets; offsets of origins are a hundred higher than those of records."""

    def __init__(self, delay: int = 0, **chosen: Any) -> None:
        self.now = 1_000.0
        of = RetryTopicOwner("orders", TopicSettings.model_validate(chosen), "bridge", "cluster", delay)
        self.partition = RetryPartition(TIER, 0, 0, of, "tier-id", 1_000, ReadAheadBudget(), lambda: self.now)

    def receive(self, *records: Record, fates: bytes | None = None) -> list[Mark]:
        return self.partition.receive(records, {RETRY_RECORD: fates or bytes(len(records))})

    def take(self, most: int = 10, room: int | None = None) -> list[tuple[str, list[int]]]:
        portions = {name: Portion(most, most, room) for name in (CHARGE, NOTIFY)}
        self.taken = self.partition.take(portions)
        return [(group.handler, group.offsets) for group, _ in self.taken]


def record(offset: int, due: float = 0.0, handler: str = CHARGE, **said: Any) -> Record:
    """A record of the retry topic."""
    delivery = Delivery(
        Message(
            said.pop("topic", "orders"),
            said.pop("partition", 3),
            said.pop("origin", 100 + offset),
            origin=f"cluster bridge {said.pop('topic_id', 'source-id')}",
        ),
        handler,
        number=said.pop("number", 1),
        runs=2,
    )
    until = said.pop("until", None)
    written: Any = retry_headers(
        delivery,
        said.pop("group", "bridge"),
        due=int(due * 1000),
        until=None if until is None else int(until * 1000),
    )
    # As Kafka gives the time at which it wrote a record (2), or at which it was made (1).
    at = (2, int(said.pop("appended") * 1000)) if "appended" in said else (1, 5)
    return Record(topic=TIER, partition=0, offset=offset, value=b"v", headers=written, timestamp=at)


def test_nothing_goes_out_before_it_is_due_and_what_is_due_goes_out_together_by_handler_and_origin() -> None:
    world = World()
    world.receive(
        *(record(n, 1_003) for n in range(3)),
        record(3, 1_001, NOTIFY),
        record(4, 1_001, partition=4),
        record(5, 1_004),
    )
    assert world.take() == []
    world.now = 1_000.999
    assert world.take() == []
    world.now = 1_001.0
    assert sorted(world.take()) == [(CHARGE, [4]), (NOTIFY, [3])]
    world.now = 1_003.5
    assert world.take() == [(CHARGE, [0, 1, 2])]
    assert world.partition.next_due == 1_004


def test_what_is_far_from_due_stays_in_kafka_and_is_read_again_from_there_in_time() -> None:
    world = World()
    world.receive(*(record(n, 5_000 + n) for n in range(FAR + 50)))
    assert world.partition.rewind == FAR
    assert world.partition.offsets.window.stop == FAR
    assert world.partition.pressure() == PauseReason.NOT_DUE
    world.now = 4_999.0 + FAR // 2
    assert world.partition.pressure() is None


def test_a_message_carries_its_origins_coordinates_and_the_record_by_which_it_came() -> None:
    world = World(commit="completion", order="key")
    world.receive(record(7, origin=12), record(9, origin=11))
    world.take()
    ((group, held),) = world.taken
    packed, left = pack_group(world.partition, group, held, "cluster", "bridge")
    assert left == []
    assert packed.account == Account(RETRY_RECORD, TIER, "tier-id", 0)
    assert packed.group.offsets == [7, 9]
    batch = from_header(CHARGE, packed.outgoing.header)
    assert (batch.topic, batch.partition, batch.topic_id, batch.order) == ("orders", 3, "source-id", "key")
    assert batch.offsets == [11, 12]
    assert [str(each.via) for each in batch.deliveries] == [f"{TIER}-0-9", f"{TIER}-0-7"]
    assert packed.outgoing.task_id == f"orders-3-11..12:{CHARGE}#1"


def test_a_single_delivery_has_its_own_identity_and_number() -> None:
    world = World()
    world.receive(record(7, origin=12, number=4))
    world.take()
    ((group, held),) = world.taken
    assert (
        pack_group(world.partition, group, held, "cluster", "bridge")[0].outgoing.task_id == f"orders-3-12:{CHARGE}#4"
    )


def test_strangers_are_counted_and_left_behind_and_second_records_of_a_delivery_are_done() -> None:
    world = World()
    alien = Record(topic=TIER, partition=0, offset=0, value=b"x", headers=[("trace", b"1")], timestamp=(1, 5))
    marks = world.receive(
        alien, record(1, group="another"), record(2), record(3, origin=102), record(4, origin=102, number=2)
    )
    own = world.partition.account
    assert marks == [Mark(own, [0, 1], Fate.GAP), Mark(own, [3], Fate.DONE)]
    assert world.partition.take_strange_count() == 2
    assert world.take(1) == [(CHARGE, [2]), (CHARGE, [4])]
    world.partition.note_handed(CHARGE, [2])
    world.partition.note_handed(CHARGE, [4])
    assert world.partition.safe() == 5


def test_with_completion_the_commit_waits_for_the_end_of_the_run_and_a_held_record_holds_it_back() -> None:
    for commit, safe in (("handoff", 2), ("completion", 0)):
        world = World(commit=commit)
        world.receive(record(0), record(1), record(2, 1_002))
        world.take()
        world.partition.note_handed(CHARGE, [0, 1])
        assert world.partition.safe() == safe
    world.partition.take_in_fates(RETRY_RECORD, 0, bytes([Fate.DONE, Fate.DONE, Fate.OPEN]))
    assert world.partition.safe() == 2


def test_what_the_ledger_has_as_handed_or_done_is_not_held_and_what_it_has_as_a_gap_is_looked_at_again() -> None:
    world = World()
    world.receive(*map(record, range(4)), fates=bytes([Fate.HANDED, Fate.DONE, Fate.GAP, Fate.OPEN]))
    assert world.take() == [(CHARGE, [2, 3])]


def test_what_did_not_go_out_goes_out_first_and_no_more_than_there_is_room_for() -> None:
    world = World()
    world.receive(*map(record, range(6)))
    assert world.take(2, room=2) == [(CHARGE, [0, 1]), (CHARGE, [2, 3])]
    world.partition.give_back(CHARGE, [0, 1])
    world.partition.note_handed(CHARGE, [2, 3])
    assert sorted(world.take(2)) == [(CHARGE, [0, 1]), (CHARGE, [4, 5])]


def test_what_did_not_go_out_keeps_its_order() -> None:
    world = World()
    world.receive(*map(record, range(4)))
    assert world.take(3, room=1) == [(CHARGE, [0, 1, 2])]
    world.partition.give_back(CHARGE, [0, 1, 2])
    assert world.take(1) == [(CHARGE, [0]), (CHARGE, [1]), (CHARGE, [2]), (CHARGE, [3])]


@pytest.mark.parametrize(("delay", "left_out"), [(60, [1, 2, 3]), (0, [1, 2])])
def test_a_retry_whose_origin_has_ended_is_marked_done_and_not_handed_out_and_a_replay_of_what_is_dead_is(
    delay: int, left_out: list[int]
) -> None:
    world, ledger = World(delay), MemoryLedger()
    source = Account(CHARGE, "orders", "source-id", 3)
    ledger.write(
        [Mark(source, [100 + n], fate) for n, fate in enumerate((Fate.PARKED, Fate.DONE, Fate.DISCARDED, Fate.DEAD))]
    )
    world.receive(*map(record, range(4)))
    world.take()
    kept: Any = ledger
    left, marks = leave_out_ended(kept, [(world.partition, *each) for each in world.taken])
    assert [group.offsets for _, group, _ in left] == [[n for n in range(4) if n not in left_out]]
    assert marks == [Mark(world.partition.account, left_out, Fate.DONE)]


def test_a_worker_whose_clock_is_a_day_ahead_holds_back_nobody_elses_retries(caplog: pytest.LogCaptureFixture) -> None:
    world = World(delay=40)
    ahead = [record(n, world.now + 86_400 + 40, appended=world.now) for n in range(FAR + 50)]
    world.receive(*ahead, record(FAR + 50, world.now + 40, appended=world.now, partition=4))
    world.now += 40 - LOW
    assert world.partition.pressure() is None
    world.receive(*ahead[FAR:], record(FAR + 50, 1_040, appended=1_000, partition=4))
    world.now = 1_040.0
    taken = world.take(1_000)
    assert (CHARGE, [FAR + 50]) in taken
    assert sum(len(offsets) for _, offsets in taken) == FAR + 51
    assert caplog.text.count("the clock of the worker") == 1
    assert "orders-3-100:shop.charge" in caplog.text


def test_what_waits_longer_than_the_longest_topic_is_reckoned_by_the_same_wrong_clock() -> None:
    world = World(delay=40)
    world.receive(record(0, 1_000 + 86_440, until=1_000 + 86_500, appended=1_000))
    world.now = 1_040.0
    world.take()
    ((_, (held,)),) = world.taken
    assert held.delivery.due == 1_100.0


def test_how_late_it_is_counts_from_the_first_that_is_due_until_it_is_handed_off() -> None:
    world = World()
    world.receive(record(0, 1_004), record(1, 1_001))
    assert world.partition.measure_late() == 0.0
    world.now = 1_010.0
    assert world.partition.measure_late() == 9.0
    assert world.partition.measure_late({CHARGE}) == 0.0
    world.take()
    assert world.partition.measure_late() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("others", [True, False], ids=["others have some behind it", "nobody has"])
def test_a_slow_handler_fills_no_partition_either_and_is_read_again_seldom_where_it_is_alone(
    others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tenth of what a partition holds and passes over at most: each of them costs the test a record.
    most = MOST // 10
    monkeypatch.setattr(retry_read_ahead, "MOST", most)
    monkeypatch.setattr(slow_handlers, "PASSED", slow_handlers.PASSED // 10)
    world = World(commit="handoff")
    partition = world.partition
    theirs = range(most + 50, 20 * most, 400) if others else range(0)
    records = [record(n, handler=NOTIFY if n in theirs else CHARGE) for n in range(20 * most)]
    marked, at, read, out, waited = bytearray(len(records)), 0, 0, 0, 0.0
    for second in range(300):
        world.now += 1
        for _ in range(1_000):
            paused = partition.pressure()
            if partition.rewind is not None:
                at = partition.rewind
                partition.end_rewind()
            if paused or at == len(records):
                break
            world.receive(*records[at : at + 150], fates=bytes(marked[at : at + 150]))
            read, at = read + 150, min(at + 150, len(records))
        for group, _ in partition.take({CHARGE: Portion(20, 20, 1), NOTIFY: Portion(20, 20, 50)}):
            partition.note_handed(group.handler, group.offsets)
            for offset in group.offsets:
                marked[offset] = Fate.HANDED
            out += len(group.offsets) if group.handler == CHARGE else 0
            waited = second if group.handler == NOTIFY else waited
    # It goes on at its own rate, and others wait for it for seconds alone.
    assert out >= 300 * 20 - 40
    assert all(marked[n] == Fate.HANDED for n in theirs)
    assert waited < 120
    # With nobody behind it: at most eight looks at all of them in five minutes.
    assert others or read < 8 * len(records)


def test_a_handler_of_which_nothing_goes_out_fills_no_partition_and_all_of_it_goes_out_when_it_goes_on() -> None:
    world = World(commit="handoff")
    partition = world.partition
    of_both = [*(record(n) for n in range(MOST + 500)), record(MOST + 500, handler=NOTIFY)]
    marked = bytearray(len(of_both))

    at = 0

    def read_on() -> None:
        nonlocal at
        while True:
            paused = partition.pressure()
            if partition.rewind is not None:
                at = partition.rewind
                partition.end_rewind()
            if paused or at == len(of_both):
                return
            world.receive(*of_both[at : at + 150], fates=bytes(marked[at : at + 150]))
            at = min(at + 150, len(of_both))

    def hand_out(room: dict[str, int]) -> list[int]:
        out = []
        for group, _ in partition.take({name: Portion(10, 10, count) for name, count in room.items()}):
            partition.note_handed(group.handler, group.offsets)
            for offset in group.offsets:
                marked[offset] = Fate.HANDED
            out += group.offsets
        return out

    read_on()
    assert partition.offsets.window.stop == MOST
    assert hand_out({CHARGE: 0, NOTIFY: 1}) == []
    world.now += STILL
    read_on()
    assert hand_out({CHARGE: 0, NOTIFY: 1}) == [MOST + 500]
    assert partition.ready == {CHARGE: KEPT}
    assert partition.safe() == 0
    out: list[int] = []
    while some := hand_out({CHARGE: 1, NOTIFY: 1}):
        out += some
        read_on()
    assert sorted(out) == list(range(MOST + 500))
    assert partition.safe() == MOST + 501


def test_of_two_records_of_one_delivery_that_are_held_one_goes_out() -> None:
    world = World()
    assert world.receive(record(0, origin=7), record(1, origin=7)) == [Mark(world.partition.account, [1], Fate.DONE)]
    assert world.take() == [(CHARGE, [0])]


def test_a_delivery_that_began_anew_and_is_parked_under_the_same_number_is_no_repeat() -> None:
    """Redis was wiped: what had been parked was left out, as its delivery was run again; then that is parked."""
    world = World()
    world.receive(record(0, origin=7))
    world.take()
    world.partition.settle(RETRY_RECORD, [0], Fate.DONE)
    assert world.receive(record(1, origin=7)) == []
    assert world.take() == [(CHARGE, [1])]
    world.partition.note_handed(CHARGE, [1])
    world.receive(record(2, origin=7))
    assert world.take() == [(CHARGE, [2])]


class Answers:
    """A catalog of which the test says what Kafka answers, one answer for each question."""

    def __init__(self, *answers: dict[Any, int]) -> None:
        self.topic_ids, self.listings, self.numbers = {"orders": "source-id"}, 1, {"orders": (0, 1, 2, 3)}
        self.answers, self.waits = list(answers), False

    def asking(self) -> "Answers":
        return self

    def ask_offsets(self, places: Any) -> None:
        assert not self.waits
        self.waits = True

    def take_answer(self) -> dict[Any, int] | None:
        if not self.waits:
            return None
        self.waits = False
        return self.answers.pop(0)


def test_a_record_that_names_a_source_record_which_does_not_exist_yet_never_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, here = World(), ("orders", 3)
    kafka: Any = Answers(*[{here: 102}] * 8)
    kept: Any = MemoryLedger()
    ends = SourceRecordCheck(kafka, lambda _: {here: KnownLog("source-id")})
    # Of partition 9 nobody has heard; the log of the last one is gone, and nothing of it can be hidden.
    world.receive(*(record(n) for n in range(4)), record(4, partition=9), record(5, topic_id="gone"))
    out, marks = [], []
    for _ in range(8):
        world.take()
        left, found = leave_out_ended(kept, [(world.partition, *each) for each in world.taken], ends.exists)
        out += [offset for _, group, _ in left for offset in group.offsets]
        marks += found
        kafka.listings += 1
    assert sorted(out) == [0, 1, 5]
    assert sorted(offset for mark in marks for offset in mark.offsets) == [2, 3, 4]
    assert {(mark.account, mark.fate) for mark in marks} == {(world.partition.account, Fate.GAP)}
    assert world.partition.take_strange_count() == 3
    assert "orders.retry.1m-0-2 names source record orders-3-102, which Kafka does not have yet" in caplog.text


def test_thousands_of_records_that_somebody_made_up_are_one_line_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, kept = World(), MemoryLedger()
    held: Any = kept
    world.receive(*(record(n) for n in range(60)))
    for _ in range(6):
        world.take()
        leave_out_ended(held, [(world.partition, *each) for each in world.taken], lambda *_: False)
    assert world.partition.take_strange_count() == 60
    assert [line.getMessage() for line in caplog.records if "names source record" in line.getMessage()] == [
        "orders.retry.1m-0-0 names source record orders-3-100, which Kafka does not have yet: it is left alone (10 "
        "such records since the last such line). Who may write to orders.retry.1m decides what runs: restrict that."
    ]
    now = [0.0]
    refusals = RefusalLog(lambda: now[0])
    assert [refusals.count(1), refusals.count(4), refusals.count(0)] == [1, 0, 0]
    now[0] = 60
    assert [refusals.count(0), refusals.count(1)] == [0, 5]
    # A burst of less than a minute is no single line that says 5.
    assert [refusals.count(1) for _ in range(600)].count(0) == 598


def _answer(ends: SourceRecordCheck, log_id: str, offset: int) -> bool | None:
    for _ in range(8):
        if (answer := ends.exists(("orders", 3), log_id, offset)) is not None:
            return answer
    return None


def test_what_was_parked_before_its_log_was_truncated_runs() -> None:
    """The source ends lower since, and what lies at the offset now has fates of its own."""
    here = ("orders", 3)
    kafka: Any = Answers(*[{here: 50}] * 9)
    ends = SourceRecordCheck(kafka, lambda _: {here: KnownLog("source-id", 1)})
    assert _answer(ends, "source-id", 80) is True
    assert _answer(ends, "source-id.1", 80) is False
    assert _answer(ends, "source-id.1", 49) is True


def test_where_a_log_ended_before_it_was_truncated_is_no_end_of_what_it_is_now() -> None:
    here = ("orders", 3)
    kafka: Any = Answers({here: 100}, *[{here: 50}] * 9)
    ends = SourceRecordCheck(kafka, lambda _: {here: KnownLog("source-id")})
    assert _answer(ends, "source-id", 80) is True
    assert _answer(ends, "source-id.1", 80) is False


def test_without_the_ledger_nothing_is_denied() -> None:
    def silent(_: Any) -> Any:
        raise LedgerUnavailable("Redis does not answer.")

    here = ("orders", 3)
    kafka: Any = Answers(*[{here: 50}] * 9)
    assert _answer(SourceRecordCheck(kafka, silent), "source-id", 80) is None


def test_after_a_wipe_nothing_is_denied_until_a_bridge_has_noted_the_log_again() -> None:
    """The log was truncated, and the wiped ledger has lost that: it comes back from what is committed."""
    here, book = ("orders", 3), dict[Any, KnownLog]()
    kafka: Any = Answers(*[{here: 50}] * 20)
    ends = SourceRecordCheck(kafka, lambda _: book)
    assert _answer(ends, "source-id", 80) is None
    book[here] = KnownLog("source-id", 1)
    assert _answer(ends, "source-id", 80) is True
    assert _answer(ends, "source-id.1", 80) is False


def test_what_kafka_has_by_a_later_answer_runs() -> None:
    world, here = World(), ("orders", 3)
    kafka: Any = Answers({here: 100}, {here: 101})
    kept: Any = MemoryLedger()
    ends, out = SourceRecordCheck(kafka, lambda _: {here: KnownLog("source-id")}), []
    world.receive(record(0))
    for _ in range(4):
        world.take()
        left, marks = leave_out_ended(kept, [(world.partition, *each) for each in world.taken], ends.exists)
        out += [offset for _, group, _ in left for offset in group.offsets]
        assert marks == []
    assert out == [0]


def test_a_record_of_another_source_is_none_of_the_topic_s() -> None:
    world = World()
    world.receive(record(0), record(1, topic="payments"))
    assert world.take() == [(CHARGE, [0])]
    assert world.partition.take_strange_count() == 1
