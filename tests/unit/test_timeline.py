"""What happened to a letter, in the order in which it did."""

from dataclasses import replace

from bridge.deadletters.inspection.topic_letters import build_letter_view
from bridge.deadletters.model.letter_view import LetterAct, LetterFailure, LetterView, build_timeline
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.formats.attempt_history import AttemptNote
from tests.desk.letters import letter

DEAD = build_letter_view(letter(1, timestamp=1_000, first_failed_at=5_000, failed_at=10_000))


def said(found: LetterView) -> list[str]:
    return [event.said for event in build_timeline(found)]


def failed(at: int) -> LetterFailure:
    return LetterFailure(1, at, "expired", "KeyError", "", "", "", 2, "orders.dlq-0-1", 7, False)


def test_a_letter_that_died_once_was_produced_failed_and_died():
    assert said(DEAD) == ["the record was produced", "failed for the first time", "died: exhausted, after 13 attempts"]


def test_one_that_died_at_its_first_failure_failed_no_time_before():
    once = build_letter_view(letter(1, timestamp=None, first_failed_at=10_000, failed_at=10_000, runs=1))
    assert said(once) == ["died: exhausted, after 1 attempt"]


def test_earlier_deaths_and_what_people_did_stand_between():
    found = replace(
        DEAD,
        history=(failed(6_000),),
        plans=(LetterAct(7_000, "ann", "replay", "", 7, "dead"),),
        trail=(
            LetterAct(7_000, "ann", "replay", "plan 7: to replay 5 letters", 7),
            LetterAct(7_500, "ann", "apply", "plan 7 applied", 7),
            LetterAct(11_000, "bob", "note", "see ticket 17"),
        ),
    )
    assert said(found)[2:] == [
        "died: expired, after 2 attempts",
        "replay by ann, plan 7: dead",
        "apply by ann: plan 7 applied",
        "died: exhausted, after 13 attempts",
        "note by bob: see ticket 17",
    ]


def test_how_a_plan_ended_with_a_letter_is_dated_by_its_end_and_not_by_the_plan_s_making():
    plan = LetterAct(7_000, "ann", "replay", "", 7, "done", state_at=19_000)
    (found,) = [event for event in build_timeline(replace(DEAD, plans=(plan,))) if event.plan == 7]
    assert (found.at, found.said) == (19_000, "replay by ann, plan 7: done")


def test_what_stands_in_the_trail_by_plan_and_by_group_is_told_once():
    act = LetterAct(9_000, "fixed in 1.4.2", "regressed", "it failed in version 1.4.2", 4)
    told = said(replace(DEAD, trail=(act, act)))
    assert len([each for each in told if each.startswith("regressed by")]) == 1


def test_what_ended_well_ends_with_that():
    resolved = replace(DEAD, listed=replace(DEAD.listed, status=LetterStatus.RESOLVED), status_at=20_000)
    assert said(resolved)[-1] == "resolved"
    assert [event.bad for event in build_timeline(resolved)] == [False, True, True, False]


def test_each_attempt_stands_at_its_time_with_its_worker_version_duration_and_error_before_the_death_it_led_to():
    made = (
        AttemptNote(1, 5_000, 1_250, "mail.Down: no", "celery@a", "1.4", "failed"),
        AttemptNote(2, 6_000, 30, "RetryLater: later", "celery@b", "1.5", "postponed"),
        AttemptNote(3, 10_000, None, "signal 9", "", "", "lost"),
    )
    found = build_letter_view(letter(1, timestamp=1_000, first_failed_at=5_000, failed_at=10_000, runs=3, history=made))
    assert said(found) == [
        "the record was produced",
        "attempt 1 failed after 1.2 s on celery@a, version 1.4: mail.Down: no",
        "attempt 2 postponed after 30 ms on celery@b, version 1.5: RetryLater: later",
        "attempt 3 lost its process: signal 9",
        "died: exhausted, after 3 attempts",
    ]
    assert [event.at for event in build_timeline(found)] == [1_000, 5_000, 6_000, 10_000, 10_000]
    assert [event.attempt for event in build_timeline(found) if event.attempt] == list(made)


def test_attempts_that_nobody_kept_are_said_to_be_missing():
    made = (AttemptNote(1, 5_000, 1, "E"), AttemptNote(9, 8_000, 1, "E"))
    found = build_letter_view(letter(1, timestamp=None, first_failed_at=5_000, failed_at=10_000, runs=10, history=made))
    assert said(found) == [
        "attempt 1 failed after 1 ms: E",
        "attempts 2 to 8 are not kept one by one",
        "attempt 9 failed after 1 ms: E",
        "attempt 10 is not kept",
        "died: exhausted, after 10 attempts",
    ]


def test_attempts_before_a_replay_stand_before_the_death_they_led_to():
    earlier = replace(failed(6_000), made=(AttemptNote(2, 6_000, 5, "E"),))
    last = replace(DEAD.listed, runs=3)
    found = replace(DEAD, listed=last, history=(earlier,), made=(AttemptNote(3, 10_000, 5, "F"),))
    assert said(found)[2:] == [
        "attempt 1 is not kept",
        "attempt 2 failed after 5 ms: E",
        "died: expired, after 2 attempts",
        "attempt 3 failed after 5 ms: F",
        "died: exhausted, after 3 attempts",
    ]
