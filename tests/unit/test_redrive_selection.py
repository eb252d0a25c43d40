"""How deliveries of a range stand, and which of them a redrive sends again."""

import pytest

from bridge.deadletters.replay.redrive_range import (
    DeliveryStand,
    OpenFateMeaning,
    RangeDelivery,
    find_sent_stands,
    judge_deliveries,
    keep_first_of_sequence,
)
from bridge.ledger.fate_rules import Fate

ALL = range(100)


def stand(fate: Fate, ground: OpenFateMeaning, offset: int = 10, noted: bool = True) -> DeliveryStand:
    (found,) = judge_deliveries(ground, [offset], bytes([fate]), [ALL] if noted else [])
    return found


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fate", [Fate.HANDED, Fate.PARKED, Fate.GAP])
def test_what_is_on_its_way_is_left_alone_also_where_all_is_to_run_again(fate, again):
    assert stand(fate, OpenFateMeaning(committed=50, joined=0)) not in find_sent_stands(again=again)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("committed", [None, 10])
def test_what_was_not_read_yet_is_left_alone(committed, again):
    found = stand(Fate.OPEN, OpenFateMeaning(committed, joined=0))
    assert found is DeliveryStand.COMING
    assert found not in find_sent_stands(again=again)


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.DISCARDED])
def test_what_has_ended_is_sent_only_where_that_is_asked_for(fate):
    found = stand(fate, OpenFateMeaning(committed=50, joined=0))
    assert found not in find_sent_stands(again=False)
    assert found in find_sent_stands(again=True)


def test_what_is_dead_is_sent():
    assert stand(Fate.DEAD, OpenFateMeaning(committed=50, joined=0)) in find_sent_stands(again=False)


def test_what_was_committed_and_is_open_is_lost_and_sent():
    found = stand(Fate.OPEN, OpenFateMeaning(committed=50, joined=0))
    assert found is DeliveryStand.LOST
    assert found in find_sent_stands(again=False)


@pytest.mark.parametrize(
    ("ground", "noted"),
    [
        (OpenFateMeaning(committed=50, joined=0), False),
        (OpenFateMeaning(committed=50, joined=20), True),
        (OpenFateMeaning(committed=50, joined=None), True),
        (OpenFateMeaning(committed=50, joined=0, lost=30), True),
    ],
    ids=["its page has expired", "before the handler was there", "the handler never was", "Redis was wiped"],
)
def test_what_nobody_knows_of_may_be_done_and_is_sent_only_where_that_is_asked_for(ground, noted):
    found = stand(Fate.OPEN, ground, noted=noted)
    assert found is DeliveryStand.UNKNOWN
    assert found not in find_sent_stands(again=False)
    assert found in find_sent_stands(again=True)


def test_many_are_told_apart_in_one_go():
    offsets = [3, 4, 7, 8, 20, 21]
    fates = bytes([Fate.DONE, Fate.OPEN, Fate.OPEN, Fate.DEAD, Fate.OPEN, Fate.OPEN])
    found = list(
        judge_deliveries(OpenFateMeaning(committed=21, joined=0), offsets, fates, [range(4, 6), range(20, 30)])
    )
    assert found == [
        DeliveryStand.DONE,
        DeliveryStand.LOST,
        DeliveryStand.UNKNOWN,
        DeliveryStand.DEAD,
        DeliveryStand.LOST,
        DeliveryStand.COMING,
    ]


@pytest.mark.parametrize(
    ("charge", "notify", "ship", "chosen"),
    [
        (DeliveryStand.DONE, DeliveryStand.DEAD, DeliveryStand.DEAD, ["notify", "other"]),
        (DeliveryStand.DEAD, DeliveryStand.DEAD, DeliveryStand.DEAD, ["charge", "other"]),
        (DeliveryStand.DONE, DeliveryStand.DONE, DeliveryStand.DONE, ["other"]),
        # Sent back it was parked: those after it follow once it is done, and not before.
        (DeliveryStand.PARKED, DeliveryStand.DEAD, DeliveryStand.DEAD, ["other"]),
        (DeliveryStand.HANDED, DeliveryStand.LOST, DeliveryStand.LOST, ["other"]),
        (DeliveryStand.DEAD, DeliveryStand.PARKED, DeliveryStand.DEAD, ["charge", "other"]),
    ],
)
def test_of_a_sequence_only_the_first_is_sent_and_it_goes_on_from_there(charge, notify, ship, chosen):
    found = [
        RangeDelivery(0, 1, name, stand, None)
        for name, stand in {"ship": ship, "other": DeliveryStand.DEAD, "notify": notify, "charge": charge}.items()
    ]
    sequence = ("charge", "notify", "ship")
    assert sorted(
        each.handler for each in keep_first_of_sequence(found, sequence, find_sent_stands(again=False))
    ) == sorted(chosen)
