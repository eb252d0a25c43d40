"""A plan carried out before a person's eyes: codes for scripts, and words for who was interrupted."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import typer

from bridge.cli.command_io import AGAIN, BAD, INTERRUPTED, OK
from bridge.cli.deadletters import plan_run
from bridge.cli.deadletters.plan_run import get_plan_exit_code, run_plan
from bridge.deadletters.model.bulk_plan import (
    BulkPlan,
    PlanCounts,
    PlanItemState,
    PlanKind,
    PlanOptions,
    PlanState,
)
from bridge.deadletters.recorder import recorder_process
from bridge.deadletters.replay.plan_progress import LeftOutLetters
from bridge.errors import KafkaUnavailable

SKIPPED = PlanItemState.SKIPPED


def plan(state: PlanState = PlanState.DONE, **outcomes: int) -> BulkPlan:
    return BulkPlan(
        7, PlanKind.REPLAY, state, "ann", 0, "", {}, PlanOptions(), PlanCounts(letters=sum(outcomes.values())), outcomes
    )


@pytest.fixture(autouse=True)
def _recorded_elsewhere(monkeypatch: pytest.MonkeyPatch):
    """That it records meanwhile is tested on real servers (tests/integration/test_canary.py)."""
    monkeypatch.setattr(recorder_process, "record_meanwhile", lambda desk: nullcontext())


class Desk:
    """A desk of one plan, which goes as a test says."""

    def __init__(self, stands: BulkPlan, error: BaseException | None = None, waited: BulkPlan | None = None) -> None:
        self.plans, self.progress, self.stands, self.error, self.waited = self, self, stands, error, waited
        self.stopped: list[str] = []

    def apply(self, id_: int, by: str, heard: Any) -> BulkPlan:
        heard(self.stands)
        if self.error is not None:
            raise self.error
        return self.stands

    def wait(self, id_: int, heard: Any) -> BulkPlan:
        assert self.waited is not None
        return self.waited

    def one(self, id_: int) -> BulkPlan:
        return self.stands

    def left_out(self, plan: BulkPlan) -> tuple[LeftOutLetters, ...]:
        return (
            (LeftOutLetters("skipped", "it is discarded by now, by plan 3 of bob", 1),) if plan.count(SKIPPED) else ()
        )

    def stop(self, id_: int, by: str, why: str) -> BulkPlan:
        self.stopped.append(why)
        return replace(self.stands, state=PlanState.STOPPED)


def ended(desk: Any, wait: bool = False) -> int:
    with pytest.raises(typer.Exit) as exit:
        run_plan(desk, desk.stands, "ann", wait, False)
    return exit.value.exit_code


@pytest.mark.parametrize(
    ("state", "outcomes", "wait", "found"),
    [
        (PlanState.DONE, {"done": 5}, True, OK),
        (PlanState.DONE, {"sent": 5}, False, OK),
        (PlanState.DONE, {"done": 4, "skipped": 1}, True, OK),
        (PlanState.DONE, {"done": 4, "dead": 1}, True, BAD),
        (PlanState.DONE, {"done": 4, "refused": 1}, True, BAD),
        (PlanState.DONE, {"done": 4, "unknown": 1}, True, BAD),
        (PlanState.STOPPED, {"dead": 1, "waiting": 4}, False, BAD),
        (PlanState.FAILED, {"waiting": 5}, False, BAD),
    ],
)
def test_a_script_learns_by_the_code_whether_all_went_well(
    state: PlanState, outcomes: Mapping[str, int], wait: bool, found: int
):
    assert get_plan_exit_code(plan(state, **outcomes), wait) == found


def test_what_was_sent_is_waited_for_where_that_is_asked(capsys: pytest.CaptureFixture[str]):
    desk = Desk(plan(sent=5), waited=plan(done=4, dead=1))
    assert ended(desk) == OK
    assert "outcomes: bridge deadletters plans show 7" in capsys.readouterr().out
    assert ended(desk, wait=True) == BAD
    assert "plan 7 is done: 4 done, 1 dead" in capsys.readouterr().out


def test_who_came_too_late_is_told_who_was_before_and_with_what(capsys: pytest.CaptureFixture[str]):
    assert ended(Desk(plan(done=4, skipped=1)), wait=True) == OK
    assert "plan 7 is done: 4 done, 1 skipped\n  1 skipped: it is discarded by now, by plan 3 of bob\n" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(("what", "said"), [(PlanKind.ARCHIVE, "2 archived"), (PlanKind.COPY, "2 copied")])
def test_where_no_handler_runs_it_is_said_what_was_done(capsys: pytest.CaptureFixture[str], what: PlanKind, said: str):
    assert ended(Desk(replace(plan(done=2), what=what)), wait=True) == OK
    assert f"plan 7 is done: {said}\n" in capsys.readouterr().out


def test_ctrl_c_stops_the_plan_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]):
    desk = Desk(plan(PlanState.APPLYING, done=1, sent=2, skipped=1, waiting=4), KeyboardInterrupt())
    assert ended(desk) == INTERRUPTED
    said = capsys.readouterr().err
    assert desk.stopped == ["interrupted (Ctrl-C)"]
    assert "3 of 8 were sent and will run; 4 were not sent." in said
    assert "plans apply 7" in said


def test_ctrl_c_while_outcomes_are_waited_for_stops_nothing(capsys: pytest.CaptureFixture[str]):
    desk = Desk(plan(PlanState.DONE, sent=5), KeyboardInterrupt())
    assert ended(desk) == INTERRUPTED
    said = capsys.readouterr().err
    assert desk.stopped == []
    assert "5 of 5 were sent" in said
    assert "plans apply" not in said


def test_ctrl_c_in_the_midst_of_a_batch_calls_nothing_sent_that_nobody_knows_of(capsys: pytest.CaptureFixture[str]):
    desk = Desk(plan(PlanState.APPLYING, sent=2, claimed=5), KeyboardInterrupt())
    assert ended(desk) == INTERRUPTED
    said = capsys.readouterr().err
    assert "2 of 7 were sent and will run; 0 were not sent." in said
    assert "5 may have been sent: `bridge deadletters record` checks" in said
    assert "to resume: bridge deadletters plans apply 7" in said


def test_of_a_plan_that_has_nothing_left_it_is_not_said_how_to_go_on(capsys: pytest.CaptureFixture[str]):
    ended(Desk(plan(PlanState.FAILED)))
    assert "go on" not in capsys.readouterr().out


def test_of_a_plan_that_failed_it_is_said_how_to_go_on(capsys: pytest.CaptureFixture[str]):
    assert ended(Desk(plan(PlanState.FAILED, waiting=3, claimed=2))) == BAD
    said = capsys.readouterr().out
    assert "3 are untouched; to resume: bridge deadletters plans apply 7" in said
    assert "2 may have been sent" in said


@pytest.mark.parametrize("what", [PlanKind.DISCARD, PlanKind.ARCHIVE, PlanKind.COPY])
def test_what_sends_nothing_to_handlers_waits_for_no_recorder(monkeypatch: pytest.MonkeyPatch, what: PlanKind):
    def never(desk: Any) -> Any:
        raise AssertionError("it asks Kafka who records")

    monkeypatch.setattr(recorder_process, "record_meanwhile", never)
    assert ended(Desk(replace(plan(done=2), what=what)), wait=True) == OK


def test_an_outage_leaves_the_plan_to_be_gone_on_with(capsys: pytest.CaptureFixture[str]):
    desk = Desk(plan(PlanState.APPLYING, sent=2, waiting=3), KafkaUnavailable("Kafka does not answer."))
    assert ended(desk) == AGAIN
    said = capsys.readouterr().err
    assert "Kafka does not answer." in said
    assert "plans apply 7" in said
    assert "plans stop 7" in said
    assert desk.stopped == []


def test_who_waits_long_for_an_end_is_told_once_what_tells_it():
    now = [0.0]
    patience = plan_run._Patience(lambda: now[0])
    under_way, over = plan(PlanState.APPLYING, sent=5), plan(done=5)
    found = []
    for at, stands, done in (
        (0, under_way, 0),
        (19, under_way, 1),
        (38, under_way, 1),
        (40, under_way, 1),
        (99, under_way, 1),
    ):
        now[0] = at
        found.append(patience.is_over(stands, done))
    assert found == [False, False, False, True, False]
    now[0] = 0.0
    quiet = plan_run._Patience(lambda: now[0])
    for at in (0, 30, 60):
        now[0] = at
        assert not quiet.is_over(over, 5)
