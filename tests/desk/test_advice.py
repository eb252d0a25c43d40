"""What to do with a group next: one table, of which the first rule that fits decides."""

from dataclasses import replace

import pytest

from bridge.deadletters.inspection.advice import GroupSurroundings, NextStep, advise_on_group
from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.model.failure_growth import FailureGrowth, FailureRate

GROUP = GroupState(
    id=7,
    handler="charge",
    error_class="ValueError",
    place="a.py:pay",
    statuses={"open": 3},
    reasons=("permanent",),
    topics=("orders",),
    versions=("1.4.1",),
    origins=("bridge",),
    first_at=0,
    last_at=0,
    hours=(0,) * 24,
    rate=FailureRate(0, 0),
    growth=None,
    fixed_in=None,
    fixed_at=None,
    fixed_by=None,
    fixed_plan=None,
    regressed_at=None,
)
GROWS = {"growth": FailureGrowth(3_600_000, 318, 60.0)}
FIXED = {"fixed_in": "1.5"}
BACK = {"regressed_at": 1_000}
BEFORE = {"statuses": {"open": 3, "discarded": 3_806}}
UNREAD = {"reasons": ("undecodable",)}
NEW = {"running": {"1.4.2": 4}}


@pytest.mark.parametrize(
    ("group", "around", "do", "why"),
    [
        ({}, {}, NextStep.LOOK, "See the failure below"),
        (GROWS | FIXED | BACK, {"plan": 118, "down": "bank"}, NextStep.WATCH, "Plan 118"),
        ({"statuses": {"resolved": 3}} | GROWS | BACK, NEW, NextStep.NOTHING, "None of its letters is open"),
        (BACK | GROWS, NEW | {"down": "bank"}, NextStep.LOOK, "Regression: marked as fixed, it failed again"),
        (FIXED | GROWS, {"down": "bank"}, NextStep.WAIT, "once all workers have 1.5; no worker is known"),
        (FIXED, {"running": {"1.5": 1, "1.4.1": 3}}, NextStep.WAIT, "1 of 4 workers reports it"),
        (GROWS, NEW | {"down": "bank"}, NextStep.WAIT, "bank is down"),
        (GROWS, NEW, NextStep.LOOK, "Failures grow: 318 since 1970-01-01 01:00:00 UTC; 60 an hour were usual"),
        (UNREAD, NEW, NextStep.REPLAY, "1.4.2 runs now"),
        ({}, {"running": {"1.4.1": 1, "1.4.2": 3}}, NextStep.LOOK, "See the failure below"),
        ({}, {"running": {"": 1, "1.4.2": 3}}, NextStep.LOOK, "See the failure below"),
        ({"versions": ()}, NEW, NextStep.LOOK, "See the failure below"),
        (UNREAD | BEFORE, {}, NextStep.EDIT, "could not be read"),
        (BEFORE, {"died_again": True}, NextStep.EDIT, "have died again"),
        (BEFORE, {}, NextStep.DISCARD, "3,806 were discarded before"),
        ({"statuses": {"open": 3, "discarded": 9, "resolved": 1}}, {}, NextStep.LOOK, "See the failure below"),
    ],
)
def test_the_first_rule_that_fits_says_what_to_do_and_why(group, around, do, why):
    said = advise_on_group(replace(GROUP, **group), GroupSurroundings(**around))
    assert (said.do, why in said.why) == (do, True), said
