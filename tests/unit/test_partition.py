"""One partition: what is handed out, given back, committed, and forgotten."""

import tracemalloc

import pytest
from confluent_kafka import Message as Record

from bridge.handler_routes import Handler
from bridge.ledger import Fate
from bridge.partitions.partition import Partition
from bridge.partitions.partition_limits import HELD_BYTES, WAITING
from bridge.settings import TopicSettings

CHARGE, NOTIFY = "shop.charge", "shop.notify"


def handler(name: str, batch: int = 3) -> Handler:
    return Handler(name, ("orders",), "celery", batch, 0)


def partition(*handlers: Handler, first: int = 0, **chosen: object) -> Partition:
    return Partition("orders", 0, first, handlers or [handler(CHARGE)], TopicSettings.model_validate(chosen), "id")


def records(*offsets: int, key: bytes | None = None) -> list[Record]:
    return [
        Record(topic="orders", partition=0, offset=offset, key=key, value=b"%d" % offset, headers=[], timestamp=(1, 5))
        for offset in offsets
    ]


def take(made: Partition) -> list[tuple[str, list[int]]]:
    return [(group.handler, group.offsets) for group, _ in made.take()]


def nothing_known(made: Partition, count: int) -> dict[str, bytes]:
    return {name: bytes(count) for name in made.accounts}


def test_groups_are_as_large_as_what_has_come_and_the_batch_allow():
    made = partition()
    made.receive(records(0, 1, 2, 3), nothing_known(made, 4))
    assert take(made) == [(CHARGE, [0, 1, 2]), (CHARGE, [3])]


def test_each_handler_gets_every_message_and_a_record_is_kept_until_the_last_has_it():
    made = partition(handler(CHARGE, 9), handler(NOTIFY, 9))
    made.receive(records(0, 1), nothing_known(made, 2))
    assert take(made) == [(CHARGE, [0, 1]), (NOTIFY, [0, 1])]
    made.note_handed(CHARGE, [0, 1])
    assert made.safe() == 0
    made.note_handed(NOTIFY, [0, 1])
    assert made.safe() == 2
    assert not made._records


def test_what_the_ledger_has_as_settled_or_handed_is_not_handed_out_again():
    made = partition(handler(CHARGE, 9))
    made.receive(records(0, 1, 2, 3), {CHARGE: bytes([Fate.DONE, Fate.OPEN, Fate.HANDED, Fate.DEAD])})
    assert take(made) == [(CHARGE, [1])]
    made.note_handed(CHARGE, [1])
    assert made.safe() == 4
    assert not made._records


def test_what_was_not_handed_off_is_given_back_in_its_place():
    made = partition(handler(CHARGE, 9))
    made.receive(records(0, 1, 2), nothing_known(made, 3))
    ((group, _),) = made.take()
    made.give_back(group.handler, group.offsets)
    assert take(made) == [(CHARGE, [0, 1, 2])]


def test_offsets_that_kafka_left_out_are_marked_as_gaps_and_are_no_holes():
    made = partition(handler(CHARGE, 9))
    marks = made.receive(records(2, 5), {CHARGE: bytes(2)})
    assert [(list(mark.offsets), mark.fate) for mark in marks] == [([0, 1], Fate.GAP), ([3, 4], Fate.GAP)]
    made.note_handed(CHARGE, [2, 5])
    assert made.safe() == 6


def test_a_gap_of_millions_of_offsets_costs_nothing():
    made = partition(handler(CHARGE, 9), commit="completion")
    tracemalloc.start()
    (mark,) = made.receive(records(0, 50_000_001), {CHARGE: bytes(2)})
    assert mark.offsets == range(1, 50_000_001)
    assert take(made) == [(CHARGE, [0, 50_000_001])]
    made.note_handed(CHARGE, [0, 50_000_001])
    assert made.pressure() is None
    made.take_in_fates(CHARGE, 50_000_001, bytes([Fate.DONE]))
    assert made.safe() == 0
    made.take_in_fates(CHARGE, 0, bytes([Fate.DONE]))
    assert made.safe() == 50_000_002
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_with_completion_the_commit_stops_at_the_first_that_is_not_settled():
    made = partition(handler(CHARGE, 9), commit="completion")
    made.receive(records(0, 1, 2), nothing_known(made, 3))
    take(made)
    made.note_handed(CHARGE, [0, 1, 2])
    made.take_in_fates(CHARGE, 0, bytes([Fate.DONE, Fate.HANDED, Fate.DONE]))
    assert made.safe() == 1
    made.take_in_fates(CHARGE, 1, bytes([Fate.DEAD, Fate.DONE]))
    assert made.safe() == 3


@pytest.mark.parametrize("lost", [Fate.OPEN, Fate.HANDED])
def test_a_fate_that_went_back_is_read_again_from_there_and_counted(lost):
    made = partition(handler(CHARGE, 9), commit="completion")
    made.receive(records(0, 1, 2), nothing_known(made, 3))
    take(made)
    made.note_handed(CHARGE, [0, 1, 2])
    made.take_in_fates(CHARGE, 0, bytes([Fate.HANDED, Fate.DONE, Fate.DONE]))
    _, reread, undone = made.take_in_fates(CHARGE, 0, bytes([Fate.HANDED, lost, Fate.DONE]))
    assert (reread, undone) == (1, 1)


def test_one_key_has_one_group_in_flight():
    made = partition(handler(CHARGE, 2), commit="completion", order="key")
    made.receive(records(0, 1, 2, key=b"a"), nothing_known(made, 3))
    made.receive(records(3, key=b"b"), nothing_known(made, 1))
    assert sorted(offset for _, offsets in take(made) for offset in offsets) == [0, 1, 3]
    made.note_handed(CHARGE, [0, 1, 3])
    assert take(made) == []
    made.take_in_fates(CHARGE, 0, bytes([Fate.DONE, Fate.DONE, Fate.OPEN, Fate.HANDED]))
    assert take(made) == [(CHARGE, [2])]


def test_in_a_sequence_the_next_handler_comes_after_the_one_before_and_a_dead_one_ends_it():
    made = partition(handler(CHARGE, 1), handler(NOTIFY, 1), sequence=(CHARGE, NOTIFY))
    made.receive(records(0, 1), nothing_known(made, 2))
    assert take(made) == [(CHARGE, [0]), (CHARGE, [1])]
    made.note_handed(CHARGE, [0, 1])
    marks, _, _ = made.take_in_fates(CHARGE, 0, bytes([Fate.DONE, Fate.DEAD]))
    assert [(mark.account.handler, list(mark.offsets), mark.fate) for mark in marks] == [(NOTIFY, [1], Fate.DEAD)]
    assert take(made) == [(NOTIFY, [0])]


def test_a_partition_pauses_when_too_much_waits_for_its_key_and_goes_on_at_half():
    made = partition(handler(CHARGE, 1), commit="completion", order="partition")
    count = WAITING + 2
    made.receive(records(*range(count)), nothing_known(made, count))
    assert made.pressure() is not None
    for offset in range(count):
        if made.pressure() is None:
            break
        made.take()
        made.note_handed(CHARGE, [offset])
        made.take_in_fates(CHARGE, offset, bytes([Fate.DONE]))
    assert WAITING // 2 - 1 <= count - offset <= WAITING // 2 + 2


def test_one_failing_key_pauses_its_partition_where_the_setting_says():
    made = Partition(
        "orders", 0, 0, [handler(CHARGE, 1)], TopicSettings(commit="completion", order="key"), "id", window=1_000
    )
    for start in range(1_002):
        made.receive(records(start, key=b"%d" % start), nothing_known(made, 1))
        for group, _ in made.take():
            made.note_handed(group.handler, group.offsets)
    # All but the first are done.
    made.take_in_fates(CHARGE, 1, bytes([Fate.DONE]) * 1_001)
    assert made.safe() == 0
    assert "kafka_window" in (made.pressure() or "")
    made.take_in_fates(CHARGE, 0, bytes([Fate.DONE]))
    assert made.safe() == 1_002
    assert made.pressure() is None


def test_large_records_that_wait_for_their_key_pause_long_before_many_small_ones():
    made = partition(handler(CHARGE, 1), commit="completion", order="key")
    large = b"x" * (HELD_BYTES // 9)
    for offset in range(12):
        found = Record(topic="orders", partition=0, offset=offset, key=b"k", value=large, headers=[], timestamp=(1, 5))
        made.receive([found], nothing_known(made, 1))
    assert made.pressure() == "messages that wait take much memory"
    for offset in range(12):
        assert take(made) == [(CHARGE, [offset])]
        made.note_handed(CHARGE, [offset])
        made.take_in_fates(CHARGE, offset, bytes([Fate.DONE]))
    assert made.pressure() is None


def test_a_key_that_most_deliveries_wait_for_is_hot():
    """Many that are spread over keys are not, nor are few."""
    made = partition(handler(CHARGE, 1), commit="completion", order="key")
    for offset in range(90):
        made.receive(records(offset, key=b"%d" % (offset % 5)), None)
    assert made.hot_keys() == []
    for offset in range(90, 400):
        made.receive(records(offset, key=b"hot" if offset % 2 else b"%d" % offset), None)
    assert made.hot_keys() == []
    made.receive(records(*range(400, 600), key=b"hot"), None)
    ((name, lane),) = made.hot_keys()
    assert (name, lane.key, lane.first, lane.waiting) == (CHARGE, b"hot", 91, 355)
    assert partition(order="partition").hot_keys() == []
