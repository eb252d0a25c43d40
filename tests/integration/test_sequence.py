"""Handlers of one message, one after the other."""

from tests.delivery_checks import all_settled, twice
from tests.processes import Stack, eventually

STEPS = ("first", "second", "third")


def test_the_next_handler_runs_after_the_one_before_is_done_and_only_the_failing_one_is_retried(calm: Stack):
    before = calm.committed("steps")
    placed = calm.produce("steps", {"n": 0}, {"second": {"fail": 2}}, *range(20))
    eventually(lambda: set(placed) <= set(calm.done("third")), 40, "all have passed all handlers")
    for where in placed:
        steps = [run.handler for run in calm.runs(coordinates=where) if run.outcome == "done"]
        assert steps == list(STEPS)
    failed = [run.handler for run in calm.runs(coordinates=placed[1]) if run.outcome == "begun"]
    assert failed == ["first", "second", "second", "second", "third"]
    # The failing message holds back no other.
    at = {(run.handler, run.coordinates): run.time for run in calm.runs() if run.outcome == "done"}
    assert at["third", placed[0]] < at["second", placed[1]]
    eventually(lambda: calm.committed("steps") == before + 22, 20)
    assert twice(calm, "third") == {}


def test_what_dies_does_not_go_on_to_the_handlers_after(calm: Stack):
    letters, before = len(calm.dead_letters("steps")), len(calm.done("third"))
    (dead, alive) = calm.produce("steps", {"second": {"dead": True}}, 1)
    eventually(lambda: alive in calm.done("third"), 30)
    found = calm.dead("steps", letters + 1)
    assert [letter.ours["handler"] for letter in found if letter.origin == dead] == ["tests.handlers.fates.second"]
    assert [run.handler for run in calm.runs(coordinates=dead)] == ["first", "first", "second"]
    assert len(calm.done("third")) == before + 1
    # No handler after it is unaccounted for: `third` is dead with `second`, without a letter of its own.
    done = len(calm.done("first")) + len(calm.done("second")) + len(calm.done("third"))
    all_settled(calm, "steps", done=done, dead=2, letters=1)
