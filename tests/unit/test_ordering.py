"""What may be handed out now."""

from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.fate_rules import Fate
from bridge.partitions.ordering import (
    DeliveryGroup,
    Order,
    OrderedQueue,
    Portion,
    SkippedDeliveries,
    make_delivery_queue,
)
from bridge.partitions.safe_offset import OffsetTracker

DONE, PARKED = Fate.DONE, Fate.PARKED


def test_without_an_order_everything_goes_out_as_it_has_come() -> None:
    lanes = make_delivery_queue("none", ["h"], [200])
    lanes.add(range(450), [b"k"] * 450)
    groups = lanes.take()
    assert [len(group.offsets) for group in groups] == [200, 200, 50]
    assert [o for group in groups for o in group.offsets] == list(range(450))
    assert (lanes.take(), lanes.waiting) == ([], 0)


def test_nothing_waits_to_fill_a_batch() -> None:
    lanes = make_delivery_queue("none", ["h"], [200])
    lanes.add([7], [None])
    assert lanes.take() == [DeliveryGroup("h", [7])]


def test_a_key_goes_out_as_one_batch_in_order_and_not_again_before_it_ended() -> None:
    lanes = make_delivery_queue("key", ["h"], [3])
    lanes.add(range(5), [b"a"] * 5)
    assert lanes.take() == [DeliveryGroup("h", [0, 1, 2])]
    lanes.settle("h", [0, 1], DONE)
    assert lanes.take() == []
    lanes.settle("h", [2], Fate.DEAD)
    assert lanes.take() == [DeliveryGroup("h", [3, 4])]


def test_a_batch_carries_several_keys() -> None:
    lanes = make_delivery_queue("key", ["h"], [200])
    lanes.add(range(6), [b"a", b"b", b"a", b"c", None, b"b"])
    assert lanes.take() == [DeliveryGroup("h", [0, 1, 2, 3, 4, 5])]


def test_a_failing_key_holds_back_itself_and_no_other() -> None:
    lanes = make_delivery_queue("key", ["h"], [10])
    lanes.add([0, 1], [b"a", b"b"])
    lanes.take()
    lanes.settle("h", [1], DONE)
    lanes.add([2, 3, 4], [b"a", b"b", None])
    assert lanes.take() == [DeliveryGroup("h", [3, 4])]
    assert lanes.waiting == 1


def test_messages_without_a_key_are_free_of_each_other() -> None:
    lanes = make_delivery_queue("key", ["h"], [1])
    lanes.add([0, 1, 2], [None, None, b""])
    assert lanes.take() == [DeliveryGroup("h", [0]), DeliveryGroup("h", [1]), DeliveryGroup("h", [2])]


def test_a_parked_message_holds_what_comes_after_it() -> None:
    lanes = make_delivery_queue("key", ["h"], [2])
    lanes.add([0, 1, 2], [b"a"] * 3)
    lanes.take()
    lanes.settle("h", [0], PARKED)
    lanes.give_back("h", [1], [b"a"])
    assert lanes.take() == []
    lanes.settle("h", [0], DONE)
    assert lanes.take() == [DeliveryGroup("h", [1, 2])]


def test_a_parked_message_does_not_hold_what_came_before_it() -> None:
    lanes = make_delivery_queue("key", ["first", "second"], [10, 10])
    lanes.add([0, 1, 2], [b"a"] * 3)
    lanes.take()
    lanes.settle("first", [1], PARKED)
    lanes.settle("first", [0], DONE)
    lanes.give_back("first", [2], [b"a"])
    assert lanes.take() == [DeliveryGroup("second", [0])]
    lanes.settle("second", [0], DONE)
    assert lanes.take() == []
    lanes.settle("first", [1], DONE)
    assert lanes.take() == [DeliveryGroup("second", [1])]


def test_a_partition_is_one_lane() -> None:
    lanes = make_delivery_queue("partition", ["h"], [2])
    lanes.add(range(3), [b"a", b"b", None])
    assert lanes.take() == [DeliveryGroup("h", [0, 1])]
    lanes.settle("h", [0], DONE)
    assert lanes.take() == []
    lanes.settle("h", [1], DONE)
    assert lanes.take() == [DeliveryGroup("h", [2])]


def test_a_sequence_runs_one_handler_after_the_other() -> None:
    lanes = make_delivery_queue("none", ["charge", "notify"], [10, 10])
    lanes.add([0, 1], [b"a", b"a"])
    assert lanes.take() == [DeliveryGroup("charge", [0, 1])]
    lanes.settle("charge", [1], DONE)
    assert lanes.take() == [DeliveryGroup("notify", [1])]
    lanes.settle("charge", [0], DONE)
    assert lanes.take() == [DeliveryGroup("notify", [0])]
    lanes.settle("notify", [0, 1], DONE)
    assert lanes.take() == []
    assert lanes.waiting == 0


def test_the_next_messages_of_a_key_wait_for_the_whole_sequence() -> None:
    lanes = make_delivery_queue("key", ["charge", "notify"], [1, 1])
    lanes.add([0, 1], [b"a", b"a"])
    out = []
    while groups := lanes.take():
        for handler, offsets, _ in groups:
            out.append((handler, offsets))
            lanes.settle(handler, offsets, DONE)
    assert out == [("charge", [0]), ("notify", [0]), ("charge", [1]), ("notify", [1])]


def test_when_a_handler_of_a_sequence_ends_dead_the_rest_are_dead_too() -> None:
    lanes = make_delivery_queue("none", ["a", "b", "c"], [10, 10, 10])
    lanes.add([0, 1], [None, None])
    lanes.take()
    assert lanes.settle("a", [0], Fate.DEAD) == [
        SkippedDeliveries("b", [0], Fate.DEAD),
        SkippedDeliveries("c", [0], Fate.DEAD),
    ]
    lanes.settle("a", [1], DONE)
    assert lanes.take() == [DeliveryGroup("b", [1])]


@pytest.mark.parametrize("fate", [DONE, PARKED, Fate.HANDED, Fate.GAP])
def test_a_handler_of_a_sequence_that_ends_in_another_way_skips_no_later_one(fate: Fate) -> None:
    lanes = make_delivery_queue("key", ["a", "b"], [10, 10])
    assert lanes.settle("a", [0], fate) == []
    lanes.add([0, 1], [b"k", b"l"])
    lanes.take()
    assert lanes.settle("a", [0], fate) == []


def test_a_bridge_that_starts_goes_on_from_the_ledger() -> None:
    lanes = make_delivery_queue("key", ["a", "b"], [10, 10])
    keys = [b"x", b"y", b"z", b"w", b"v", b"x"]
    doomed = lanes.add(range(6), keys, [bytes([1, 2, 2, 4, 3, 0]), bytes([0, 0, 2, 0, 0, 0])])
    assert doomed == [SkippedDeliveries("b", [3], Fate.DEAD)]
    assert lanes.take() == [DeliveryGroup("b", [1])]  # x is handed, v parked, z done, w dead
    lanes.settle("a", [0], DONE)
    assert lanes.take() == [DeliveryGroup("b", [0])]
    lanes.settle("b", [0], DONE)
    assert lanes.take() == [DeliveryGroup("a", [5])]


def test_an_open_message_waits_for_a_later_one_of_its_key_that_is_in_flight() -> None:
    lanes = make_delivery_queue("key", ["h"], [10])
    lanes.add([0, 1], [b"x", b"x"], [bytes([Fate.OPEN, Fate.HANDED])])
    assert lanes.take() == []
    lanes.settle("h", [1], DONE)
    assert lanes.take() == [DeliveryGroup("h", [0])]


def test_what_is_settled_on_a_topic_without_order_holds_nothing() -> None:
    lanes = make_delivery_queue("none", ["h"], [10])
    lanes.add(range(6), [None] * 6, [bytes([0, 1, 2, 3, 4, 0])])
    assert lanes.take() == [DeliveryGroup("h", [0, 5])]


@pytest.mark.parametrize("order", ["none", "key", "partition"])
def test_what_is_given_back_goes_out_first_and_in_order(order: Order) -> None:
    lanes = make_delivery_queue(order, ["h"], [10])
    lanes.add(range(3), [b"a"] * 3)
    (group,) = lanes.take()
    lanes.add([3], [b"a"])
    lanes.give_back("h", group.offsets, [b"a"] * 3)
    assert lanes.take() == [DeliveryGroup("h", [0, 1, 2, 3])]


def test_what_another_bridge_ended_leaves_its_lane() -> None:
    lanes = make_delivery_queue("key", ["h"], [10])
    lanes.add([0, 1], [b"a", b"a"])
    lanes.settle("h", [0], DONE)
    assert lanes.take() == [DeliveryGroup("h", [1])]


def test_lanes_are_forgotten_when_they_are_empty() -> None:
    lanes = OrderedQueue("key", ["h"], [10])
    for offset in range(1000):
        lanes.add([offset], [str(offset).encode()])
        for group in lanes.take():
            lanes.settle("h", group.offsets, DONE)
    assert not lanes._lanes
    assert not lanes._lane_of
    assert not lanes._ready


def test_batch_sizes_must_fit_the_handlers() -> None:
    with pytest.raises(ValueError, match="batch sizes"):
        make_delivery_queue("none", ["a", "b"], [1])


@given(
    st.sampled_from(["none", "key", "partition"]),
    st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=30),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_each_message_goes_out_once_in_the_order_of_its_lane(
    order: Order, keys: list[bytes | None], batch: int, chance: object
) -> None:
    lanes = make_delivery_queue(order, ["h"], [batch])
    out: list[int] = []
    flying: list[int] = []
    arrived = 0
    while len(out) < len(keys) or flying:
        steps = {"add": arrived < len(keys), "take": lanes.waiting > 0, "settle": bool(flying)}
        step = chance.choice([name for name, can in steps.items() if can])  # type: ignore[attr-defined]
        if step == "add":
            more = min(len(keys), arrived + 7)
            lanes.add(range(arrived, more), keys[arrived:more])
            arrived = more
        elif step == "take":
            for group in lanes.take():
                assert 0 < len(group.offsets) <= batch
                out += group.offsets
                flying += group.offsets
        else:
            lanes.settle("h", [flying.pop(chance.randrange(len(flying)))], DONE)  # type: ignore[attr-defined]
        assert lanes.waiting == arrived - len(out)
    assert sorted(out) == list(range(len(keys)))
    assert lanes.waiting == 0
    for lane in {"all"} if order == "partition" else {b"a", b"b", b"c"} if order == "key" else set():
        own = [o for o in out if lane == "all" or keys[o] == lane]
        assert own == sorted(own)


def test_a_portion_says_how_many_go_together_and_how_many_groups_go_now() -> None:
    alone = make_delivery_queue("none", ["h"], [1])
    alone.add(range(10), [None] * 10)
    portion = Portion(size=3, alone=5, room=2, why="1 ms each")
    assert alone.take({"h": portion}) == [
        DeliveryGroup("h", [0, 1, 2], "1 ms each"),
        DeliveryGroup("h", [3, 4, 5], "1 ms each"),
    ]
    assert (portion.spent, alone.waiting) == (True, 4)
    assert alone.take({"h": Portion(3, 5)}) == [DeliveryGroup("h", [6, 7, 8]), DeliveryGroup("h", [9])]


def test_lanes_without_room_keep_their_place() -> None:
    lanes = make_delivery_queue("key", ["h"], [1])
    lanes.add(range(6), [b"a", b"a", b"b", b"c", b"d", b"d"])
    assert lanes.ready == 6
    assert lanes.take({"h": Portion(2, 2, room=1)}) == [DeliveryGroup("h", [0, 1])]
    assert (lanes.ready, lanes.waiting) == (4, 4)
    assert lanes.take({"h": Portion(2, 2, room=0)}) == []
    assert lanes.take({"h": Portion(2, 2)}) == [DeliveryGroup("h", [2, 3]), DeliveryGroup("h", [4, 5])]


def test_what_is_one_lane_is_not_shared_and_goes_as_large_as_it_may() -> None:
    line = make_delivery_queue("partition", ["h"], [1])
    line.add(range(9), [None] * 9)
    assert line.ready == 0
    assert line.take({"h": Portion(size=1, alone=4)}) == [DeliveryGroup("h", [0, 1, 2, 3])]
    assert line.take({"h": Portion(size=1, alone=4)}) == []


def test_a_dead_message_that_holds_keeps_those_behind_it_until_it_is_done_or_discarded() -> None:
    for end in (Fate.DONE, Fate.DISCARDED):
        lanes = make_delivery_queue("key", ["h"], [1], holds_dead=True)
        assert isinstance(lanes, OrderedQueue)
        lanes.add([0, 1, 2], [b"a", b"a", b"b"])
        assert sorted(group.offsets for group in lanes.take()) == [[0], [2]]
        lanes.settle("h", [0, 2], Fate.DEAD)
        assert lanes.take() == []
        assert (lanes.count_behind([0, 2]), lanes.count_behind([2])) == (1, 0)
        # A bridge that starts anew reads the fate from the ledger.
        anew = make_delivery_queue("key", ["h"], [1], holds_dead=True)
        anew.add([0, 1, 2], [b"a", b"a", b"b"], [bytes([Fate.DEAD, Fate.OPEN, Fate.DONE])])
        assert anew.take() == []
        for each in (lanes, anew):
            each.settle("h", [0], end)
            assert each.take() == [DeliveryGroup("h", [1])]


class CountedDeque(deque[int]):
    """A deque that counts how many of its items were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        for each in super().__iter__():
            self.looked_at += 1
            yield each


def test_what_waits_behind_several_dead_messages_of_a_key_counts_once_and_is_not_looked_at_for_each() -> None:
    lanes = make_delivery_queue("key", ["h"], [1], holds_dead=True)
    assert isinstance(lanes, OrderedQueue)
    fates = [Fate.OPEN, *[Fate.DEAD] * 100, *[Fate.OPEN] * 500, Fate.DEAD, Fate.OPEN]
    offsets = range(len(fates))
    lanes.add(offsets, [b"a"] * 601 + [b"b"] * 2, [bytes(fates)])
    waiting = lanes._lane_of[0].waiting = CountedDeque(lanes._lane_of[0].waiting)
    waiting.looked_at = 0
    dead = [offset for offset in offsets if fates[offset] is Fate.DEAD]
    assert lanes.count_behind(dead) == 500 + 1
    assert waiting.looked_at <= len(fates)


def test_the_commit_does_not_pass_a_dead_delivery_that_holds() -> None:
    for holds, safe in ((True, 1), (False, 3)):
        offsets = OffsetTracker(0, ["h"], "completion", ordered=True, holds_dead=holds)
        offsets.read([0, 1, 2])
        offsets.take_in_fates("h", 0, bytes([Fate.DONE, Fate.DEAD, Fate.DONE]))
        assert offsets.safe() == safe
        assert offsets.find("h", Fate.DEAD, 9) == ([1] if holds else [])
