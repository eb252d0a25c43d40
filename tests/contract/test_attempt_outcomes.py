"""What is promised of how attempts ended: all of them count, a success ends what failed, and times are by one clock."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from bridge.errors import PublishFailed
from bridge.formats.delivery import Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.ledger import Ledger
from bridge.ledger.attempt_statistics import (
    OutcomeSummary,
    RecentAttempts,
    note_outcomes,
    note_unpublished,
    read_outcomes,
    read_unpublished,
)
from bridge.ledger.clock_skew import ClockSkew
from tasks.execution.dead_letter_writer import write_dead_letter
from tasks.worker.ledger_telemetry import attempt_outcomes

CHARGE = ("orders", "shop.charge")


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with closing(Ledger(redis_url, "cluster", "bridge")) as made:
        yield made


def told(ledger: Ledger, *attempts: RecentAttempts, now: float) -> OutcomeSummary:
    for each in attempts:
        note_outcomes(ledger, {CHARGE: each}, now)
    return read_outcomes(ledger, [CHARGE], time.time())[CHARGE]


def attempts(done: float | None = None, failed: tuple[float, ...] = (), error: str = "") -> RecentAttempts:
    made = RecentAttempts()
    if done is not None:
        made.succeeded(done)
    for at in failed:
        made.has_failed(at, error=error)
    return made


def test_of_what_never_ran_nothing_is_known(ledger: Ledger) -> None:
    assert read_outcomes(ledger, [CHARGE], time.time())[CHARGE] == OutcomeSummary()


def test_each_handler_of_one_report_has_its_own_outcomes(ledger: Ledger) -> None:
    now, notify = time.time(), ("orders", "shop.notify")
    failed = attempts(failed=(now - 30,), error="KeyError: 'sku'")
    note_outcomes(ledger, {CHARGE: attempts(done=now - 60), notify: failed}, now)
    found = read_outcomes(ledger, [CHARGE, notify], time.time())
    assert (found[CHARGE].failed, found[notify].failed, found[notify].error) == (0, 1, "KeyError: 'sku'")
    assert found[CHARGE].done_at == pytest.approx(now - 60, abs=1)
    assert found[notify].failing_since == pytest.approx(now - 30, abs=1)


def test_failures_of_all_processes_are_added_up_since_the_last_success(ledger: Ledger) -> None:
    now = time.time()
    first = attempts(done=now - 60, failed=(now - 50, now - 40), error="KeyError: 'sku'")
    second = attempts(failed=(now - 45, now - 10), error="TypeError: no")
    found = told(ledger, first, second, now=now)
    assert found.failed == 4
    assert found.failing_since == pytest.approx(now - 50, abs=1)
    assert found.done_at == pytest.approx(now - 60, abs=1)
    assert found.error == "TypeError: no"


def test_a_success_ends_what_failed_before_it(ledger: Ledger) -> None:
    now = time.time()
    found = told(ledger, attempts(failed=(now - 50, now - 40)), attempts(done=now - 5), now=now)
    assert (found.failed, found.failing_since) == (0, 0.0)
    # Failures from before the success that are told late change nothing.
    assert told(ledger, attempts(failed=(now - 20,)), now=now).failed == 0


def test_a_process_whose_clock_is_wrong_tells_right_times(ledger: Ledger) -> None:
    ahead = time.time() + 300
    found = told(ledger, attempts(failed=(ahead - 30,)), now=ahead)
    assert found.failing_since == pytest.approx(time.time() - 30, abs=2)


def test_processes_that_die_are_counted(ledger: Ledger) -> None:
    dead = RecentAttempts(lost=2)
    found = told(ledger, dead, RecentAttempts(lost=1), now=time.time())
    assert found.lost == 3
    assert found.lost_since == pytest.approx(time.time(), abs=2)


def test_dead_letters_that_kafka_refuses_are_all_counted_until_it_takes_them(ledger: Ledger) -> None:
    refused = {f"orders-0-{n}:shop.charge": "not enough replicas" for n in range(650)}
    note_unpublished(ledger, {"shop.charge": refused}, {})
    # The same ones again are no more.
    note_unpublished(ledger, {"shop.charge": refused}, {"other": ["x"]})
    found = read_unpublished(ledger, ["shop.charge", "other"], time.time())
    assert found.keys() == {"shop.charge"}
    assert (found["shop.charge"].many, found["shop.charge"].error) == (650, "not enough replicas")
    assert found["shop.charge"].since == pytest.approx(time.time(), abs=2)
    note_unpublished(ledger, {}, {"shop.charge": refused})
    assert read_unpublished(ledger, ["shop.charge"], time.time()) == {}


def test_what_the_burial_cannot_write_is_counted_until_it_can(ledger: Ledger) -> None:
    class Settling:
        """Kafka refuses the first."""

        refuses = True
        ledger: Ledger

        def dead(self, delivery: Delivery, dead: Dead) -> None:
            if self.refuses:
                raise PublishFailed("not enough replicas")

    settling: Any = Settling()
    settling.ledger = ledger
    delivery = Delivery(Message("orders", 0, 7), "shop.charge")
    dead = Dead("poison", Failure("WorkerLost", "killed", "", 1), "1")
    with pytest.raises(PublishFailed):
        write_dead_letter(settling, delivery, dead, "bridge", again=False)
    attempt_outcomes.flush()
    found = read_unpublished(ledger, ["shop.charge"], time.time())["shop.charge"]
    assert (found.many, found.error) == (1, "not enough replicas")
    settling.refuses = False
    write_dead_letter(settling, delivery, dead, "bridge", again=True)
    attempt_outcomes.flush()
    assert read_unpublished(ledger, ["shop.charge"], time.time()) == {}


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_a_clock_that_differs_from_that_of_redis_is_known_with_since_when(ledger: Ledger, ahead: float) -> None:
    skew = ClockSkew(ledger, lambda: time.time() + ahead)
    found = skew.measure()
    assert found["clock_skew"] == pytest.approx(ahead, abs=1)
    assert found["clock_skew_since"] == pytest.approx(time.time(), abs=2)
    assert skew.now() == pytest.approx(time.time(), abs=1)
    assert ClockSkew(ledger).measure() == {"clock_skew": pytest.approx(0, abs=1), "clock_skew_since": None}
