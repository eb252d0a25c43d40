"""What the desk's chaos run holds against its rows: what is not recorded, is sent twice, or ended otherwise."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.desk.faults import ACTS
from tests.chaos.desk.schedule import LANES
from tests.chaos.desk.verdict import Content, Death, Delivery, Done, Item, Left, Row, Sent, judge
from tests.chaos.desk.world import MEMBERS
from tests.chaos.schedule import schedule
from tests.chaos.verdict import Happened, Record

ORIGIN = "p.kept-0-7"
DELIVERY = Delivery(ORIGIN, "kept", "id")
CONTENT = Content(b"k", b"{}", (("uid", b"kept.1"), ("do", b"dead 1")))
DIED = Death(DELIVERY, 0, 0, 1000, 1.0, ("p.kept.dlq", 0, 3), CONTENT)
SENT = Sent(DELIVERY, 1, 1, 5.0, ("p.kept.replay", 0, 0), CONTENT)
ITEM = Item(1, DELIVERY, "done", 1, SENT.place)
DONE = Done(DELIVERY.work, 1, 6.0, 42)
ROW = Row(DELIVERY, "resolved", 0, 1, 1, (DIED.place,), CONTENT, 2)
WIPED = Happened("redis", "wiped", 4.0, 4.1, frozenset())


def left(**changes: Any) -> Left:
    """A letter that was sent back, and done then."""
    record = Record("kept.1", "dead 1", "", b"k", 0, 7)
    made = Left({ORIGIN: record}, {ORIGIN: CONTENT}, [DIED], [SENT], [DONE], [ROW], [ITEM], [])
    return replace(made, **changes)


def never(**changes: Any) -> Left:
    """One that nobody can cure: sent back, it died again."""
    again = DIED._replace(number=1, replayed=1, failed_at=6000, at=6.0, place=("p.kept.dlq", 0, 4))
    row = ROW._replace(status="open", number=1, occurrences=2, failures=2, places=(DIED.place, again.place))
    found = left(deaths=[DIED, again], done=[], rows=[row], items=[ITEM._replace(state="dead")])
    return replace(found, records={ORIGIN: Record("kept.1", "dead 99", "", b"k", 0, 7)}, **changes)


@pytest.mark.parametrize("made", [left, never])
def test_a_letter_that_is_known_and_ended_as_it_says_is_no_fault(made: Callable[[], Left]):
    found = judge(made())
    assert (found.wrong, dict(found.lost), found.twice) == ([], {}, Counter())


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": []},
        {"rows": [ROW, ROW]},
        {"rows": [ROW._replace(occurrences=2)]},
        {"rows": [ROW._replace(failures=2, places=(DIED.place, DIED.place))]},
        {"rows": [ROW._replace(places=(("p.kept.dlq", 0, 9),))]},
        {"rows": [ROW._replace(status="open")]},
        {"rows": [ROW._replace(content=CONTENT._replace(key=b"other"))]},
        {"rows": [ROW._replace(content=CONTENT._replace(value=None), size=3)]},
        {"deaths": [], "done": []},
        {"sent": []},
        {"sent": [SENT, SENT._replace(place=("p.kept.replay", 0, 1))]},
        {"sent": [SENT._replace(content=CONTENT._replace(value=b"[]"))]},
        {"items": []},
        {"items": [ITEM._replace(state="sent")]},
        {"items": [ITEM._replace(state="dead")]},
        {"items": [ITEM._replace(state="discarded")]},
        {"items": [ITEM._replace(state="unknown")]},
        {"done": []},
        {"done": [DONE, DONE._replace(at=7.0)]},
    ],
)
def test_what_is_not_as_kafka_and_the_handlers_have_it_is_wrong(changes: dict[str, Any]):
    assert judge(left(**changes)).wrong != []


def test_a_delivery_of_a_plan_that_was_sent_twice_is_wrong_even_if_both_are_said():
    sent = [SENT, SENT._replace(place=("p.kept.replay", 0, 1))]
    assert len(judge(left(sent=sent, items=[ITEM, ITEM])).wrong) == 1
    assert judge(left(sent=sent, items=[ITEM, ITEM._replace(plan=2, state="unknown")], faults=[WIPED])).wrong == []


def test_a_value_that_is_too_large_for_the_desk_is_known_by_its_size():
    assert judge(left(rows=[ROW._replace(content=CONTENT._replace(value=None))])).wrong == []


def test_what_redis_has_lost_has_an_end_that_is_not_known():
    assert judge(left(items=[ITEM._replace(state="unknown")], faults=[WIPED])).wrong == []


def test_what_is_neither_done_nor_dead_is_lost():
    found = judge(left(deaths=[], sent=[], done=[], rows=[], items=[]))
    assert (found.wrong, found.lost) == ([], {"kept": [DELIVERY.work]})


def test_a_death_written_twice_is_one_failure_and_one_that_ran_again_is_one_or_two():
    twice = [DIED, DIED._replace(place=("p.kept.dlq", 0, 4), at=1.5)]
    killed = Happened("worker", "frozen", 0.9, 1.2, frozenset())
    row = ROW._replace(occurrences=2)
    same = judge(left(deaths=twice, rows=[row], faults=[WIPED._replace(begun=1.2, ended=1.3), killed]))
    assert same.wrong == []
    assert same.twice == Counter({"dead letter: redis wiped": 1})
    places = (DIED.place, ("p.kept.dlq", 0, 4))
    assert judge(left(deaths=twice, rows=[row._replace(failures=2, places=places)], faults=[WIPED])).wrong != []


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_the_run_of_ci_has_45_faults_and_every_kind_that_befalls_the_desk_alone(seed: int):
    faults = schedule(seed, 45, LANES)
    assert len(faults) >= 45
    own = ("recorder", "operator", "postgres")
    kinds = {(name.rstrip(" 12"), kind.name) for name, lane in LANES.items() for kind in lane.kinds}
    drawn = {(fault.lane.rstrip(" 12"), fault.kind) for fault in faults}
    assert {each for each in kinds if each[0] in own} <= drawn


def test_every_kind_can_be_done_and_every_member_has_its_faults():
    assert {(name.split()[0], kind.name) for name, lane in LANES.items() for kind in lane.kinds} <= ACTS.keys()
    assert {*MEMBERS} <= LANES.keys()
