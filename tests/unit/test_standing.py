"""How deliveries of a range stand, and which of them a redrive sends again."""

import pytest

from bridge.deadletters.redrive.ranges import Found, first_of_sequence
from bridge.deadletters.redrive.standing import Ground, Stand, sent, stands
from bridge.ledger.fates import Fate

ALL = range(100)


def stand(fate: Fate, ground: Ground, offset: int = 10, noted: bool = True) -> Stand:
    (found,) = stands(ground, [offset], bytes([fate]), [ALL] if noted else [])
    return found


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fate", [Fate.HANDED, Fate.PARKED, Fate.GAP])
def test_what_is_on_its_way_is_left_alone_also_where_all_is_to_run_again(fate, again):
    assert stand(fate, Ground(committed=50, joined=0)) not in sent(again=again)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("committed", [None, 10])
def test_what_was_not_read_yet_is_left_alone(committed, again):
    found = stand(Fate.OPEN, Ground(committed, joined=0))
    assert found is Stand.COMING
    assert found not in sent(again=again)


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.DISCARDED])
def test_what_has_ended_is_sent_only_where_that_is_asked_for(fate):
    found = stand(fate, Ground(committed=50, joined=0))
    assert found not in sent(again=False)
    assert found in sent(again=True)


def test_what_is_dead_is_sent():
    assert stand(Fate.DEAD, Ground(committed=50, joined=0)) in sent(again=False)


def test_what_was_committed_and_is_open_is_lost_and_sent():
    found = stand(Fate.OPEN, Ground(committed=50, joined=0))
    assert found is Stand.LOST
    assert found in sent(again=False)


@pytest.mark.parametrize(
    ("ground", "noted"),
    [
        (Ground(committed=50, joined=0), False),
        (Ground(committed=50, joined=20), True),
        (Ground(committed=50, joined=None), True),
        (Ground(committed=50, joined=0, lost=30), True),
    ],
    ids=["its page has expired", "before the handler was there", "the handler never was", "Redis was wiped"],
)
def test_what_nobody_knows_of_may_be_done_and_is_sent_only_where_that_is_asked_for(ground, noted):
    found = stand(Fate.OPEN, ground, noted=noted)
    assert found is Stand.UNKNOWN
    assert found not in sent(again=False)
    assert found in sent(again=True)


def test_many_are_told_apart_in_one_go():
    offsets = [3, 4, 7, 8, 20, 21]
    fates = bytes([Fate.DONE, Fate.OPEN, Fate.OPEN, Fate.DEAD, Fate.OPEN, Fate.OPEN])
    found = list(stands(Ground(committed=21, joined=0), offsets, fates, [range(4, 6), range(20, 30)]))
    assert found == [Stand.DONE, Stand.LOST, Stand.UNKNOWN, Stand.DEAD, Stand.LOST, Stand.COMING]


@pytest.mark.parametrize(
    ("charge", "notify", "ship", "chosen"),
    [
        (Stand.DONE, Stand.DEAD, Stand.DEAD, ["notify", "other"]),
        (Stand.DEAD, Stand.DEAD, Stand.DEAD, ["charge", "other"]),
        (Stand.DONE, Stand.DONE, Stand.DONE, ["other"]),
        # Sent back it was parked: those after it follow once it is done, and not before.
        (Stand.PARKED, Stand.DEAD, Stand.DEAD, ["other"]),
        (Stand.HANDED, Stand.LOST, Stand.LOST, ["other"]),
        (Stand.DEAD, Stand.PARKED, Stand.DEAD, ["charge", "other"]),
    ],
)
def test_of_a_sequence_only_the_first_is_sent_and_it_goes_on_from_there(charge, notify, ship, chosen):
    found = [
        Found(0, 1, name, stand, None)
        for name, stand in {"ship": ship, "other": Stand.DEAD, "notify": notify, "charge": charge}.items()
    ]
    sequence = ("charge", "notify", "ship")
    assert sorted(each.handler for each in first_of_sequence(found, sequence, sent(again=False))) == sorted(chosen)
