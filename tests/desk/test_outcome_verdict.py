"""How what was sent back has ended, where the ledger alone does not say it."""

import pytest

from bridge.deadletters.replay.outcome_deduction import (
    KnownOutcome,
    OutcomeVerdict,
    judge_by_kafka,
    judge_by_ledger,
)
from bridge.ledger.fate_rules import Fate


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
) -> KnownOutcome:
    there = there and not dropped
    return KnownOutcome(origin, own, passed, there, settles, since, 3_600.0, again, dropped, remembers)


LONG = 3_601.0


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (known(Fate.DONE, passed=True), OutcomeVerdict.DONE),
        (known(Fate.DISCARDED), OutcomeVerdict.DISCARDED),
        (known(), OutcomeVerdict.WAIT),
        (known(since=LONG), OutcomeVerdict.WAIT),
        (known(Fate.OPEN), OutcomeVerdict.WAIT),
        (known(own=Fate.HANDED, passed=True), OutcomeVerdict.WAIT),
        (known(own=Fate.HANDED, passed=True, since=LONG), OutcomeVerdict.WAIT),
        (known(own=Fate.DONE, passed=True), OutcomeVerdict.WAIT),
        (known(own=Fate.DONE, passed=True, since=LONG), OutcomeVerdict.LOOK),
        (known(Fate.PARKED, Fate.DONE, passed=True), OutcomeVerdict.WAIT),
        (known(Fate.OPEN, passed=True), OutcomeVerdict.LOOK),
        (known(passed=True), OutcomeVerdict.LOOK),
        (known(Fate.OPEN, dropped=True), OutcomeVerdict.GONE),
        (known(Fate.OPEN, passed=True, dropped=True), OutcomeVerdict.LOOK),
        # It was handed off before Kafka dropped it, and runs.
        (known(own=Fate.HANDED, dropped=True), OutcomeVerdict.WAIT),
        (known(own=Fate.DONE, dropped=True), OutcomeVerdict.WAIT),
        # Redis was wiped since it was sent: it may have been handed off.
        (known(Fate.OPEN, dropped=True, remembers=False), OutcomeVerdict.WAIT),
        (known(Fate.OPEN, dropped=True, remembers=False, since=LONG), OutcomeVerdict.LOOK),
        # The log ends before it: it was made again, or an answer is late.
        (known(Fate.OPEN, there=False), OutcomeVerdict.WAIT),
        (known(Fate.OPEN, there=False, since=LONG), OutcomeVerdict.LOOK),
        # It runs though it was done: its own record tells.
        (known(Fate.DONE, Fate.OPEN, again=True), OutcomeVerdict.WAIT),
        (known(Fate.DONE, Fate.HANDED, passed=True, again=True), OutcomeVerdict.WAIT),
        (known(Fate.DONE, Fate.DONE, passed=True, again=True), OutcomeVerdict.DONE),
        (known(Fate.DONE, Fate.DEAD, passed=True, again=True), OutcomeVerdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), OutcomeVerdict.LOOK),
    ],
)
def test_the_ledger_tells_and_kafka_is_asked_where_it_has_forgotten(found, verdict):
    assert judge_by_ledger(found) is verdict


@pytest.mark.parametrize(
    ("found", "parked", "recorded", "verdict"),
    [
        # Redis was wiped: it was settled, is not parked, and has no letter.
        (known(Fate.OPEN, passed=True), False, True, OutcomeVerdict.DONE),
        (known(Fate.OPEN, passed=True), True, True, OutcomeVerdict.WAIT),
        (known(Fate.OPEN, passed=True), False, False, OutcomeVerdict.WAIT),
        (known(Fate.OPEN, passed=True, since=LONG), False, False, OutcomeVerdict.WAIT),
        # What is committed is only handed off: the broker may have lost it.
        (known(Fate.OPEN, passed=True, settles=False), False, True, OutcomeVerdict.WAIT),
        (known(Fate.OPEN, passed=True, settles=False, since=LONG), False, True, OutcomeVerdict.UNKNOWN),
        # It had its run, and neither a letter nor a parked record came of it: its retry topic was deleted, perhaps.
        (known(Fate.DEAD, Fate.DONE, passed=True, since=LONG), False, True, OutcomeVerdict.UNKNOWN),
        (known(Fate.DEAD, Fate.DONE, passed=True, since=LONG), True, True, OutcomeVerdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), True, True, OutcomeVerdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), False, False, OutcomeVerdict.WAIT),
        (known(Fate.DONE, Fate.PARKED, passed=True, again=True), False, True, OutcomeVerdict.DONE),
        # The ledger has it as dead still: so it has not forgotten, and it is not done.
        (known(Fate.DEAD, passed=True), False, True, OutcomeVerdict.WAIT),
    ],
)
def test_what_was_settled_and_is_neither_dead_nor_parked_is_done(found, parked, recorded, verdict):
    assert judge_by_kafka(found, parked=parked, recorded=recorded) is verdict
