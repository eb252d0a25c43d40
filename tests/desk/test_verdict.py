"""How what was sent back has ended, where the ledger alone does not say it."""

import pytest

from bridge.deadletters.outcomes.verdict import Known, Verdict, after_a_look, at_first
from bridge.ledger.fates import Fate


def known(
    origin: Fate = Fate.DEAD,
    own: Fate = Fate.OPEN,
    *,
    passed: bool = False,
    there: bool = True,
    settles: bool = True,
    since: float = 60.0,
    again: bool = False,
    dropped: bool = False,
    remembers: bool = True,
) -> Known:
    there = there and not dropped
    return Known(origin, own, passed, there, settles, since, 3_600.0, again, dropped, remembers)


LONG = 3_601.0


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (known(Fate.DONE, passed=True), Verdict.DONE),
        (known(Fate.DISCARDED), Verdict.DISCARDED),
        (known(), Verdict.WAIT),
        (known(since=LONG), Verdict.WAIT),
        (known(Fate.OPEN), Verdict.WAIT),
        (known(own=Fate.HANDED, passed=True), Verdict.WAIT),
        (known(own=Fate.HANDED, passed=True, since=LONG), Verdict.WAIT),
        (known(own=Fate.DONE, passed=True), Verdict.WAIT),
        (known(own=Fate.DONE, passed=True, since=LONG), Verdict.LOOK),
        (known(Fate.PARKED, Fate.DONE, passed=True), Verdict.WAIT),
        (known(Fate.OPEN, passed=True), Verdict.LOOK),
        (known(passed=True), Verdict.LOOK),
        (known(Fate.OPEN, dropped=True), Verdict.GONE),
        (known(Fate.OPEN, passed=True, dropped=True), Verdict.LOOK),
        # It was handed off before Kafka dropped it, and runs.
        (known(own=Fate.HANDED, dropped=True), Verdict.WAIT),
        (known(own=Fate.DONE, dropped=True), Verdict.WAIT),
        # Redis was wiped since it was sent: it may have been handed off.
        (known(Fate.OPEN, dropped=True, remembers=False), Verdict.WAIT),
        (known(Fate.OPEN, dropped=True, remembers=False, since=LONG), Verdict.LOOK),
        # The log ends before it: it was made again, or an answer is late.
        (known(Fate.OPEN, there=False), Verdict.WAIT),
        (known(Fate.OPEN, there=False, since=LONG), Verdict.LOOK),
        # It runs though it was done: its own record tells.
        (known(Fate.DONE, Fate.OPEN, again=True), Verdict.WAIT),
        (known(Fate.DONE, Fate.HANDED, passed=True, again=True), Verdict.WAIT),
        (known(Fate.DONE, Fate.DONE, passed=True, again=True), Verdict.DONE),
        (known(Fate.DONE, Fate.DEAD, passed=True, again=True), Verdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), Verdict.LOOK),
    ],
)
def test_the_ledger_tells_and_kafka_is_asked_where_it_has_forgotten(found, verdict):
    assert at_first(found) is verdict


@pytest.mark.parametrize(
    ("found", "parked", "recorded", "verdict"),
    [
        # Redis was wiped: it was settled, is not parked, and has no letter.
        (known(Fate.OPEN, passed=True), False, True, Verdict.DONE),
        (known(Fate.OPEN, passed=True), True, True, Verdict.WAIT),
        (known(Fate.OPEN, passed=True), False, False, Verdict.WAIT),
        (known(Fate.OPEN, passed=True, since=LONG), False, False, Verdict.WAIT),
        # What is committed is only handed off: the broker may have lost it.
        (known(Fate.OPEN, passed=True, settles=False), False, True, Verdict.WAIT),
        (known(Fate.OPEN, passed=True, settles=False, since=LONG), False, True, Verdict.UNKNOWN),
        # It had its run, and neither a letter nor a parked record came of it: its retry topic was deleted, perhaps.
        (known(Fate.DEAD, Fate.DONE, passed=True, since=LONG), False, True, Verdict.UNKNOWN),
        (known(Fate.DEAD, Fate.DONE, passed=True, since=LONG), True, True, Verdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), True, True, Verdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), False, False, Verdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), False, True, Verdict.DONE),
        # The ledger has it as dead still: so it has not forgotten, and it is not done.
        (known(Fate.DEAD, passed=True), False, True, Verdict.WAIT),
    ],
)
def test_what_was_settled_and_is_neither_dead_nor_parked_is_done(found, parked, recorded, verdict):
    assert after_a_look(found, parked=parked, recorded=recorded) is verdict
