"""Whether handlers fail, hang, die or are too slow: each incident has its sentence, and peace has none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.dispatch.carrier_message import WaitingFailures
from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.failure import Failure
from bridge.inspection.status_report import list_problems
from bridge.jobs.backlog import BacklogGrowth
from bridge.ledger.attempt_statistics import OutcomeSummary, UnpublishedDeadLetters
from bridge.ledger.delivery_counts import COUNT_KINDS, HOURS, MINUTES, CountSeries
from bridge.problems.problem_table import PROBLEM_ROWS
from tasks.errors import RegistryDown
from tasks.execution import batch_progress
from tasks.execution.process_loss import TaskNotes
from tasks.worker.worker_announcement import ProcessActivity
from tests.unit.test_problems import CHARGE, DOWN, HALT, HELD_BACK, NOW, WELL, bridge, worker

WHOSE = ("orders", CHARGE.name)


def series(**minutes: tuple[int, ...]) -> dict[tuple[str, str], CountSeries]:
    """Counts of the last minutes; what is not said is 0."""

    def padded(what: str, length: int) -> tuple[int, ...]:
        told = minutes.get(what, ())
        return (0,) * (length - len(told)) + told

    return {
        WHOSE: CountSeries(
            {what: padded(what, MINUTES) for what in COUNT_KINDS}, dict.fromkeys(COUNT_KINDS, (0,) * HOURS)
        )
    }


def outcomes(**known: Any) -> dict[tuple[str, str], OutcomeSummary]:
    return {WHOSE: OutcomeSummary(**known)}


#: Thirty seconds after a bad release: no sample shows it, as all that failed lies behind the backlog.
BAD_RELEASE = replace(
    WELL,
    counts=series(handled=(900, 500, 0), failed=(0, 120, 310)),
    outcomes=outcomes(done_at=NOW - 31, failing_since=NOW - 30, failed=430, failed_at=NOW - 1, error="KeyError: 'sku'"),
)


def test_a_bad_release_is_said_within_thirty_seconds_though_no_sample_shows_it():
    (problem,) = list_problems(BAD_RELEASE)
    assert problem.startswith(
        f"Every attempt of {CHARGE.name} fails, since 2026-01-31 11:59:35 UTC (30 s): 430 attempts"
    )
    assert "KeyError: 'sku'" in problem
    assert (problem.kind, problem.many, problem.since) == ("failing", 430, NOW - 30)
    assert problem.row.within == 30


@pytest.mark.parametrize("begins", range(60))
def test_that_one_in_twenty_fails_is_said_within_the_three_minutes_that_its_row_names(begins: int):
    def counts(second: int) -> dict[tuple[str, str], CountSeries]:
        per_minute = [min(60, second - 60 * minute) for minute in range(second // 60 + 1)]
        failing = [max(0, seconds - (begins if not n else 0)) for n, seconds in enumerate(per_minute)]
        handled = [20 * all_of - failed for all_of, failed in zip(per_minute, failing, strict=True)]
        return series(handled=(1200, 1200, *handled), failed=(0, 0, *failing))

    began = NOW // 60 * 60
    said = [
        second
        for second in range(begins, begins + 181)
        for known in [
            outcomes(done_at=began + second, failing_since=began + second, failed=1, failed_at=began + second)
        ]
        if list_problems(replace(WELL, now=began + second, counts=counts(second), outcomes=known))
    ]
    assert said
    assert "within 3 minutes if one in twenty fails" in PROBLEM_ROWS["failing"].said


def test_deliveries_are_only_said_to_be_retried_if_some_are_seen_to_wait_for_a_retry():
    # An error that autoretry_for does not list makes a dead letter at once.
    (problem,) = list_problems(BAD_RELEASE)
    assert "they are retried" not in problem
    assert problem.endswith(
        "Fix the cause. Deliveries whose error the handler retries (autoretry_for) run again; any other error makes a "
        "dead letter at once: replay those."
    )
    assert problem.do == "fix the cause, then replay the dead letters"
    waiting = [WaitingFailures(CHARGE.name, "failed", 3, NOW - 9, "x")]
    (problem,) = list_problems(replace(BAD_RELEASE, failing=waiting))
    assert problem.endswith("Those that wait are retried, and become dead letters when their retries are spent.")


#: The error of a delivery, as the ledger and the broker keep it, for which the schema registry was unavailable.
OUTAGE = str(
    Failure.from_error(
        RegistryDown(10, "the schema registry http://registry is unavailable: it answered with HTTP 503"),
        traceback=False,
    )
)


def test_an_outage_of_the_schema_registry_is_said_within_thirty_seconds_and_that_no_attempt_is_spent():
    five = WaitingFailures(CHARGE.name, "failed", 5, NOW - 15, OUTAGE)
    assert list_problems(replace(WELL, failing=[replace(five, since=NOW - 14)])) == []
    (problem,) = list_problems(replace(WELL, failing=[five]))
    assert problem == (
        f"Deliveries of {CHARGE.name} cannot be decoded, since 2026-01-31 11:59:50 UTC (15 s): the schema registry "
        "http://registry is unavailable: it answered with HTTP 503. 5 deliveries wait for it. None is lost and no "
        "attempt is spent: they run again by themselves, until `give_up_after` if the handler has it. Restore the "
        "schema registry, or correct SCHEMA_REGISTRY_…"
    )
    assert (problem.row.identifier, problem.many, problem.since) == ("handler_failing", 5, NOW - 15)


def test_ten_deliveries_that_find_no_schema_registry_are_said_before_any_sample_shows_them():
    known = outcomes(done_at=NOW - 31, failing_since=NOW - 9, failed=10, failed_at=NOW - 1, error=OUTAGE)
    (problem,) = list_problems(replace(WELL, outcomes=known))
    assert "cannot be decoded" in problem
    assert "no attempt is spent" in problem
    assert "dead letter" not in problem


def test_while_a_topic_is_halted_nobody_says_that_what_waits_for_the_schema_registry_runs_by_itself():
    waiting = [WaitingFailures(CHARGE.name, "failed", 5, NOW - 60, OUTAGE)]
    said = list_problems(replace(WELL, halts={"orders": HALT}, failing=waiting))
    (problem,) = [words for words in said if "HTTP 503" in words]
    assert problem.endswith("`bridge resume orders`.")


@pytest.mark.parametrize(
    "waits", [{"retries": {"orders": 430}}, {"failing": [WaitingFailures(CHARGE.name, "failed", 3, NOW - 9, "x")]}]
)
def test_it_stays_said_while_what_failed_waits_and_not_longer(waits: dict[str, Any]):
    long_ago = outcomes(done_at=NOW - 999, failing_since=NOW - 900, failed=430, failed_at=NOW - 300, error="x")
    (problem,) = list_problems(replace(WELL, outcomes=long_ago, **waits))
    assert problem.startswith("Every attempt")
    assert list_problems(replace(WELL, outcomes=long_ago)) == []


def test_nine_failures_or_a_success_between_are_no_outage():
    few = outcomes(failing_since=NOW - 30, failed=9, failed_at=NOW - 1)
    assert list_problems(replace(WELL, outcomes=few)) == []
    mended = outcomes(done_at=NOW - 1, failed_at=NOW - 20)
    assert list_problems(replace(WELL, outcomes=mended, counts=series(handled=(900, 900, 9), failed=(0, 30, 1)))) == []


def test_one_attempt_in_twenty_that_fails_is_said():
    known = outcomes(done_at=NOW - 1, failed_at=NOW - 1, failing_since=NOW - 1, failed=1, error="OSError: no route")
    found = replace(WELL, outcomes=known, counts=series(handled=(600, 570, 570, 40), failed=(0, 30, 30, 3)))
    (problem,) = list_problems(found)
    assert problem.startswith(f"Attempts of {CHARGE.name} fail, since")
    assert "63 of the last 1,243 (5%)" in problem
    assert "OSError: no route" in problem


@pytest.mark.parametrize(
    "change",
    [
        # What needs a dependency that is down, what no worker runs, and less than one in twenty.
        {"breakers": [DOWN]},
        {"workers": {"w:1": worker(handlers=[])}},
        {"outcomes": outcomes(done_at=NOW, failed_at=NOW), "counts": series(handled=(900, 900), failed=(20, 20))},
    ],
)
def test_what_another_sentence_says_or_what_is_rare_is_not_said_to_fail(change: dict[str, Any]):
    assert [each for each in list_problems(replace(BAD_RELEASE, **change)) if each.kind == "failing"] == []


def test_of_a_halted_topic_what_fails_says_that_it_waits():
    (_, problem) = list_problems(replace(BAD_RELEASE, halts={"orders": HALT}))
    assert "`bridge resume orders`" in problem


def test_dead_letters_that_kafka_refuses_are_counted_in_full():
    sample = WaitingFailures(CHARGE.name, "unpublished", 25, NOW - 60, "OSError: no", more=True)
    counted = {CHARGE.name: UnpublishedDeadLetters(650, NOW - 90, "NOT_ENOUGH_REPLICAS")}
    (problem,) = list_problems(replace(WELL, failing=[sample], unpublished=counted))
    assert "the dead letters of 650 deliveries" in problem
    assert "NOT_ENOUGH_REPLICAS" in problem
    assert problem.since == NOW - 90


def running(*ages: float) -> dict[str, Any]:
    return worker(
        processes=2,
        running=[
            {"handler": CHARGE.name, "record": f"orders-0-{n}", "pid": 40 + n, "seconds": age}
            for n, age in enumerate(ages)
        ],
    )


def test_handlers_that_hang_are_said_with_the_process_and_the_record():
    known = outcomes(done_at=NOW - 45)
    (problem,) = list_problems(replace(WELL, workers={"w:1": running(40, 30)}, outcomes=known))
    for words in ("hangs", "40 s", "2 of 2 processes", "orders-0-0 in process 40 of w:1", "py-spy dump --pid 40"):
        assert words in problem
    assert (problem.many, problem.since) == (2, NOW - 40)
    assert (PROBLEM_ROWS["hung"].within or 0) >= 40


def test_one_process_that_hangs_beside_others_is_said_after_a_minute():
    known = outcomes(done_at=NOW - 1)
    assert list_problems(replace(WELL, workers={"w:1": running(40, 1)}, outcomes=known)) == []
    (problem,) = list_problems(replace(WELL, workers={"w:1": running(61, 1)}, outcomes=known))
    assert "1 of 2 processes" in problem


def test_a_handler_that_takes_as_long_as_ever_does_not_hang():
    assert list_problems(replace(WELL, workers={"w:1": running(40, 30)}, costs={CHARGE.name: 10.0})) == []


def slow(**more: Any) -> Any:
    growth = {"deliveries": 28_367, "seconds": 6_020.0, "rate": 14.0, "since": NOW - 60, **more}
    return replace(
        WELL,
        bridges={"a:1": bridge(backlog_growth={"orders": growth})},
        workers={"w:1": worker(processes=2), "w:2": worker(processes=0)},
    )


def test_workers_that_are_too_slow_are_said_with_what_would_do():
    (problem,) = list_problems(slow())
    for words in ("too slow", "1 min", "28,367 deliveries are 50.2 min of work", "grows by 7 min a minute", "14 more"):
        assert words in problem


@pytest.mark.parametrize("more", [{"rate": -3.0}, {"rate": 0.0}, {"seconds": 90.0}])
def test_a_backlog_that_falls_or_is_short_needs_nobody(more: dict[str, Any]):
    assert list_problems(slow(**more)) == []


def test_processes_that_die_are_said():
    known = outcomes(lost=3, lost_since=NOW - 50, lost_at=NOW - 5)
    (problem,) = list_problems(replace(WELL, outcomes=known))
    assert "3 of them" in problem
    assert list_problems(replace(WELL, outcomes=outcomes(lost=2, lost_since=NOW - 50, lost_at=NOW - 5))) == []
    assert list_problems(replace(WELL, outcomes=outcomes(lost=9, lost_since=NOW - 1900, lost_at=NOW - 900))) == []


def test_traffic_that_stops_is_said():
    known = replace(WELL, lag={"orders": 0}, outcomes=outcomes(done_at=NOW - 110))
    (problem,) = list_problems(replace(known, counts=series(handled=(120,) * 58 + (0, 0))))
    assert "No records arrive on topic 'orders', since 2026-01-31 11:58:15 UTC" in problem
    assert "120 records" in problem
    for quiet in ((120,) * 58 + (0, 1), (120,) * 20 + (0,) * 40, (0,) * 60, (5,) * 58 + (0, 0)):
        assert list_problems(replace(known, counts=series(handled=quiet))) == []


def test_traffic_that_stops_is_said_though_a_transaction_holds_back_one_partition():
    known = replace(WELL, lag={"orders": 0}, counts=series(handled=(120,) * 58 + (0, 0)))
    held = [HELD_BACK, {**HELD_BACK, "partition": 1}]
    for count, is_quiet in ((1, True), (2, False)):
        found = list_problems(replace(known, bridges={"a:1": bridge(open_transactions=held[:count])}))
        assert [each.kind for each in found] == ["transaction", *(["quiet"] if is_quiet else [])]


def test_a_clock_that_is_wrong_is_said_with_its_host():
    late = worker(clock_skew=300.0, host="node-7", clock_skew_since=NOW - 60)
    (problem,) = list_problems(replace(WELL, workers={"w:1": late, "w:2": worker(clock_skew=0.2, host="node-8")}))
    assert "The clock of host 'node-7' is 5 min ahead of that of Redis" in problem


@pytest.mark.parametrize(
    ("lost", "started", "words"),
    [
        ({"b:2": 30.0}, NOW - 3600, "1 bridge ended without a shutdown, since 2026-01-31 11:59:35 UTC (30 s)"),
        ({"b:2": 900.0}, NOW - 3600, "b:2; 1 run"),
        # Another has taken its place.
        ({"b:2": 30.0}, NOW - 40, ""),
        ({"b:2": 130.0, "b:3": 70.0, "b:4": 10.0}, NOW - 5, "2 bridges ended"),
        ({}, NOW - 5, ""),
    ],
)
def test_a_bridge_that_is_lost_is_said_until_another_takes_its_place(
    lost: dict[str, float], started: float, words: str
):
    found = list_problems(replace(WELL, bridges={"a:1": bridge(started=started)}, lost=lost))
    assert len(found) == bool(words)
    assert words in "".join(found)


def test_bridges_that_die_each_minute_are_said_though_each_has_a_successor():
    alive = {name: bridge(started=NOW - 5) for name in ("a:7", "a:8", "a:9")}
    (problem,) = list_problems(replace(WELL, bridges=alive, lost={"b:2": 130.0, "b:3": 70.0, "b:4": 10.0}))
    assert "Bridges die again and again, 3 in the last 10 min" in problem


def test_a_backlog_grows_if_it_does_so_all_the_time():
    def said(*seconds: float) -> dict[str, Any]:
        growth, found = BacklogGrowth(), {}
        for number, each in enumerate(seconds):
            found = growth.add_sample({"orders": {"ready": {"deliveries": each, "seconds": each}}}, NOW + 10 * number)
        return found

    assert said(0, 100, 200, 300, 400)["orders"] == {"deliveries": 400, "seconds": 400, "rate": 10, "since": NOW}
    assert said(0, 100, 200) == {}
    assert said(900, 800, 700, 600, 500) == {}
    assert said(0, 900, 800, 700, 600) == {}


def test_the_delivery_that_a_process_runs_is_known_also_within_a_batch(monkeypatch: pytest.MonkeyPatch):
    now, notes = [1000.0], {7: TaskNotes(frozenset(), 3)}
    monkeypatch.setattr(batch_progress, "read_notes", lambda pid, task: notes[pid])
    deliveries = tuple(Delivery(Message("orders", 0, offset), CHARGE.name) for offset in (3, 4, 5))
    batch = Batch(CHARGE.name, "orders", 0, deliveries)
    headers = {HEADER: to_header(batch)}
    request = SimpleNamespace(
        worker_pid=7, time_start=990.0, id="x", name=CHARGE.name, message=SimpleNamespace(headers=headers)
    )
    activity = ProcessActivity(lambda: now[0])
    assert activity.list_running([request]) == [
        {"handler": CHARGE.name, "record": "orders-0-3", "pid": 7, "seconds": 10.0}
    ]
    now[0], notes[7] = 1002.0, TaskNotes(frozenset({3}), 4)
    assert activity.list_running([request]) == []
    now[0] = 1042.0
    assert activity.list_running([request])[0] == {
        "handler": CHARGE.name,
        "record": "orders-0-4",
        "pid": 7,
        "seconds": 40.0,
    }
    request.time_start = None
    assert activity.list_running([request]) == []
