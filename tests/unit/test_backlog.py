"""What is in a queue, reckoned from some of its messages."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.backpressure.queue_pressure import estimate_deliveries
from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.handler_routes import Routes
from bridge.jobs.backlog import Backlog, add_up_counts, backlog_to_data, count_due_deliveries, measure_backlogs
from bridge.jobs.kafka_state import MINUTE, MinuteGrowth
from bridge.kafka.clients import KafkaException
from bridge.kafka.partition_offsets import END, OffsetQuestion
from tasks.worker.worker_announcement import count_held_deliveries
from tests.unit.test_retry_partition import CHARGE, NOTIFY, World, record

samples = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 500)), min_size=1, max_size=16)


@given(samples)
def test_of_a_short_queue_each_message_counts_as_what_it_carries(found):
    carried = estimate_deliveries(len(found), found)
    assert carried == pytest.approx({h: sum(n for name, n in found if name == h) for h in {h for h, _ in found}})


@given(samples, st.integers(16, 20_000))
def test_of_a_long_one_no_more_is_reckoned_than_the_largest_seen_and_no_less_than_the_smallest(found, messages):
    counts = [count for _, count in found]
    carried = sum(estimate_deliveries(messages, found).values())
    assert min(counts) * messages * 0.999 <= carried <= max(counts) * messages * 1.001


def test_of_an_empty_queue_nothing_is_reckoned():
    assert estimate_deliveries(0, []) == {}


def test_each_queue_has_each_state_and_seconds_only_where_all_its_handlers_were_measured():
    found = measure_backlogs(
        ["q", "r"],
        ready={"q": {"fast": 1000, "slow": 2}},
        taken={"q": {"new": 1}, "gone": {"fast": 5}},
        due={"r": {"fast": 3, "new": 0}},
        costs={"fast": 0.001, "slow": 10.0, "new": None},
    )
    assert found["q", "ready"].deliveries == 1002
    assert found["q", "ready"].seconds == pytest.approx(21.0)
    assert found["q", "taken"] == Backlog(1, None)
    assert found["q", "due"] == found["r", "ready"] == Backlog(0, 0.0)
    assert found["r", "due"].seconds == pytest.approx(0.003)
    assert {queue for queue, _ in found} == {"q", "r"}
    assert backlog_to_data(found)["q"]["taken"] == {"deliveries": 1, "seconds": None}


def test_what_others_announced_is_added_up_and_what_is_no_count_is_left_out():
    said = [{"q": {"a": 1}}, {"q": {"a": 2, "b": 1}, "r": {"a": 5}}, None, {"q": 7}, {"q": {"a": "x", "b": -1}}]
    assert add_up_counts(said) == {"q": {"a": 3, "b": 1}, "r": {"a": 5}}


class Request:
    def __init__(self, name: str, count: int, queue: str = "q") -> None:
        rows = [[offset, 0, None, None, None] for offset in range(count)]
        headers = {"kafka": {"topic": "t", "partition": 0, "messages": rows}} if count else {}
        self.name, self.message = name, self
        self.headers, self.delivery_info = headers, {"routing_key": queue}


def test_a_worker_tells_the_deliveries_that_it_has_by_queue_and_handler_and_no_strange_task():
    assert count_held_deliveries([Request("a", 200), Request("a", 1), Request("b", 3, "r"), Request("other", 0)]) == {
        "q": {"a": 201},
        "r": {"b": 3},
    }


@given(st.lists(st.tuples(st.floats(0, 200), st.integers(0, 1000)), max_size=40))
def test_what_grew_within_the_last_minute_is_counted_and_nothing_that_is_older(steps):
    now, total_, minute, seen = 0.0, 0, MinuteGrowth(), []
    for wait, more in steps:
        now, total_ = now + wait, total_ + more
        seen.append((now, total_))
        grown = minute.measure_growth(now, total_)
        at_least = total_ - min((value for at, value in seen if at > now - MINUTE), default=total_)
        older = [value for at, value in seen if at <= now - MINUTE]
        assert at_least <= grown <= total_ - (older[-1] if older else seen[0][1])


def test_a_topic_that_was_made_again_counts_from_its_beginning():
    minute = MinuteGrowth()
    assert [minute.measure_growth(at, total_) for at, total_ in [(0, 100), (5, 500), (10, 3), (15, 10)]] == [
        0,
        400,
        0,
        7,
    ]


class Live:
    def __init__(self, topic: str, **waiting: int) -> None:
        self.source, self.place, self.waiting = topic, (topic, 0), waiting


def test_what_is_due_is_what_was_read_and_what_was_not_for_each_handler_that_may_run():
    partitions: list[Any] = [Live("orders", charge=2, mail=0), Live("halted", charge=9), Live("idle", mail=0)]
    found = count_due_deliveries(
        partitions,
        {("orders", 0): 10, ("halted", 0): 5},
        {},
        Routes({}),
        lambda handler: f"queue of {handler}",
        halted=["halted"],
        suspended=SuspendedHandlers(down=frozenset({"mail"}), parked=frozenset({"charge"})),
    )
    assert found == {"queue of charge": {"charge": 12}}


def test_of_what_is_parked_only_what_is_due_counts_and_what_was_not_read_goes_to_its_handlers():
    world = World()
    world.receive(record(0, 1_000), record(1, 1_000, NOTIFY), record(2, 9_000))

    def found(up_to: int) -> dict[str, float]:
        return count_due_deliveries(
            [world.partition], {}, {world.partition.place: up_to}, Routes({}), lambda _: "q"
        ).get("q", {})

    assert found(0) == {CHARGE: 1, NOTIFY: 1}
    assert found(world.partition.offsets.window.stop + 10) == {CHARGE: 6, NOTIFY: 6}


class Admin:
    def __init__(self, *answers: int | Exception) -> None:
        self.answers, self.asked = answers, 0

    def list_offsets(self, wanted: Any, request_timeout: float, isolation_level: Any = None) -> dict[Any, Future[Any]]:
        self.asked += 1
        futures: dict[Any, Future[Any]] = {each: Future() for each in wanted}
        for future, answer in zip(futures.values(), self.answers, strict=False):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(SimpleNamespace(offset=answer))
        return futures


def test_what_kafka_does_not_tell_is_left_out_and_nothing_is_asked_twice_at_a_time():
    places = {("t", 0): END, ("t", 1): 5.0}
    admin: Any = Admin(7, KafkaException())
    asking = OffsetQuestion(admin)
    assert asking.take_answer() is None
    asking.ask_offsets(places)
    assert asking.take_answer() == {("t", 0): 7}
    assert asking.take_answer() is None
    admin.answers = (1,)
    asking.ask_offsets(places)
    asking.ask_offsets(places)
    assert (asking.take_answer(), admin.asked) == (None, 2)
