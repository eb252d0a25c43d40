"""What of a batch runs later: together where it is due together, and nothing before what its order holds back."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.delivery import Delivery, Message
from tasks.execution.later_deliveries import DeliveryWait, LaterDeliveries


def delivery(offset: int, key: bytes | None = None) -> Delivery:
    return Delivery(Message("orders", 0, offset, key=key), "h")


def test_what_is_due_together_goes_together_in_the_order_it_came():
    later = LaterDeliveries(None)
    for offset, delay in ((1, 4.0), (2, 8.0), (3, 4.0)):
        later.again(delivery(offset), DeliveryWait(delay))
    taken = [(delay, [each.message.offset for each in found]) for delay, found in later.take()]
    assert taken == [(4.0, [1, 3]), (8.0, [2])]
    assert list(later.take()) == []


def test_what_could_not_be_sent_is_still_there():
    later = LaterDeliveries(None)
    later.again(delivery(1), DeliveryWait(4.0))
    later.again(delivery(2), DeliveryWait(8.0))
    taking = later.take()
    next(taking)
    next(taking)
    del taking
    assert [delay for delay, _ in later.take()] == [8.0]


@given(st.lists(st.sampled_from([b"a", b"b", None])), st.sampled_from([b"a", b"b", None]))
def test_a_key_that_waits_holds_back_itself_and_nothing_else(keys, failing):
    later = LaterDeliveries("key")
    later.again(delivery(0, failing), DeliveryWait(4.0))
    for offset, key in enumerate(keys, 1):
        held = failing is not None and key == failing
        assert later.wait_of(delivery(offset, key)) == (DeliveryWait(4.0) if held else None)


@given(st.lists(st.sampled_from([b"a", b"b", None]), min_size=1))
def test_a_partition_in_order_waits_as_a_whole_and_one_without_an_order_for_nothing(keys):
    for order, expected in (("partition", DeliveryWait(4.0)), (None, None)):
        later = LaterDeliveries(order)
        later.again(delivery(0, b"c"), DeliveryWait(4.0))
        assert {later.wait_of(delivery(offset, key)) for offset, key in enumerate(keys, 1)} == {expected}


def test_what_was_only_put_off_holds_nothing_back():
    later = LaterDeliveries("key")
    later.put_off(delivery(1, b"a"), DeliveryWait(0.0))
    assert later.wait_of(delivery(2, b"a")) is None


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", None]), st.booleans()), max_size=8),
    st.sampled_from(["key", "partition", None]),
)
def test_what_is_parked_together_knows_behind_which_it_stays(put_off, order):
    later = LaterDeliveries(order)
    for offset, (key, fails) in enumerate(put_off):
        each = delivery(offset, key)
        wait = later.wait_of(each)
        if wait is not None:
            later.put_off(each, wait)
        elif fails:
            later.again(each, DeliveryWait(300.0, parked=True))
    parked = [each for _, each in later.take_parked()]
    lanes: dict[object, int] = {}
    for each in parked:
        key = each.message.key if order == "key" else None
        free = order is None or (order == "key" and key is None)
        assert each.after == (None if free else lanes.get(key))
        lanes[key] = each.message.offset
    assert list(later.take()) == []


def test_what_waited_for_a_dead_one_that_ended_waits_for_the_next_that_dies():
    later = LaterDeliveries("key")
    later.hold_behind(delivery(2, b"a"), DeliveryWait(1.0))
    for waiting in (replace(delivery(3, b"a"), after=1), replace(delivery(9, b"a"), after=8)):
        later.put_off(waiting, DeliveryWait(1.0))
    ((_, put_off),) = later.take()
    assert [each.after for each in put_off] == [2, 8]


def test_what_waits_in_celery_is_not_parked():
    later = LaterDeliveries(None)
    later.again(delivery(1), DeliveryWait(4.0))
    later.again(delivery(2), DeliveryWait(4.0, parked=True))
    assert [each.message.offset for _, each in later.take_parked()] == [2]
    assert [(delay, [each.message.offset for each in some]) for delay, some in later.take()] == [(4.0, [1])]


def test_what_waits_holds_back_what_is_behind_it_and_nothing_before_it():
    later = LaterDeliveries("key")
    later.again(delivery(31, b"a"), DeliveryWait(4.0))
    assert later.wait_of(delivery(8, b"a")) is None
    assert later.wait_of(delivery(41, b"a")) == DeliveryWait(4.0)
    later.again(delivery(8, b"a"), DeliveryWait(8.0))
    assert later.wait_of(delivery(16, b"a")) == DeliveryWait(8.0)


def test_what_waits_together_goes_in_its_order_whichever_was_put_off_first():
    for wait in (DeliveryWait(4.0), DeliveryWait(4.0, parked=True), DeliveryWait(0.0, gate="held")):
        later = LaterDeliveries("key")
        for offset in (31, 8):
            later.again(delivery(offset, b"a"), wait)
        parked = [each for _, each in later.take_parked()]
        found = [each for _, some in (*later.take(), *later.take_held()) for each in some] or parked
        assert [each.message.offset for each in found] == [8, 31]
        assert [each.after for each in parked] == ([None, 8] if wait.parked else [])


def test_one_whose_predecessor_travels_elsewhere_still_waits_for_it():
    later = LaterDeliveries("key")
    later.again(delivery(64, b"a"), DeliveryWait(1.0, parked=True))
    later.put_off(replace(delivery(102, b"a"), after=88), DeliveryWait(1.0, parked=True))
    assert [each.after for _, each in later.take_parked()] == [None, 88]
