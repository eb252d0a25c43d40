"""RabbitMQ as the Celery broker: each delivery has its one end there too.

With classic queues on the RabbitMQ of this machine, with quorum queues on RabbitMQ 4.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Queue
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from tasks.declaration.celery_defaults import make_quorum_queue
from tests.delivery_checks import AUDITED, audit, choose, in_order, twice, wait_until_settled
from tests.processes import Served, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.rabbitmq import RabbitmqServer
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow

#: By the kind of queue, the fixture of its server and Celery's own settings for it.
QUEUES: dict[str, tuple[str, dict[str, Any]]] = {
    "classic": ("rabbitmq", {}),
    "quorum": ("rabbitmq_4", {"task_default_queue_type": "quorum"}),
}


class World:
    """One bridge, and one worker at a time, for all tests of a kind of queue."""

    def __init__(self, stack: Stack, rabbitmq: RabbitmqServer) -> None:
        self.stack, self.rabbitmq = stack, rabbitmq
        self.bridge = stack.bridge()
        self.worker: Served = stack.worker()

    def all_settled(self, topic: str = "orders") -> None:
        """Wait until all has its end, and nothing is lost or left over."""
        wait_until_settled(self.stack, topic)
        found = audit(self.stack, topic)
        unsettled = set(AUDITED) - {"done", "dead"}
        assert {name: found[name] for name in unsettled} == dict.fromkeys(unsettled, 0)
        eventually(lambda: self.rabbitmq.waiting(self.stack.queue) == 0, 20, "the queue is empty")


@pytest.fixture(scope="module", params=sorted(QUEUES))
def world(
    request: pytest.FixtureRequest,
    kafka: KafkaServer,
    redis_shared: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A stack whose broker is RabbitMQ, with the ledger in a Redis."""
    server, settings = QUEUES[request.param]
    rabbitmq: RabbitmqServer = request.getfixturevalue(server)
    prefix, folder = f"amqp.{request.param}", tmp_path_factory.mktemp("amqp")
    ledger = redis_shared.fresh_url()
    with Stack(kafka.bootstrap_servers, rabbitmq.url, prefix, folder, "", LEDGER_URL=ledger) as stack:
        topics = {"orders": {"commit": "completion"}, "keyed": {"commit": "completion", "order": "key"}}
        choose(stack, topics, lost_pauses=(0.2, 0.5), broker_transport_options={}, **settings)
        stack.make_topics(*topics)
        yield World(stack, rabbitmq)


def test_what_waits_in_rabbitmq_returns_to_its_queue_and_not_to_one_whose_name_ends_the_same(
    rabbitmq_4: RabbitmqServer, topic_prefix: str
):
    shop, eu_shop = queues = [make_quorum_queue(name) for name in (topic_prefix, f"eu.{topic_prefix}")]
    app = Celery("names", broker=rabbitmq_4.url, set_as_current=False)
    app.conf.update(task_default_queue_type="quorum", task_queues=queues)
    with app.connection_for_write() as connection:
        declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")
        for queue in queues:
            queue(connection).declare()
            bind_queue_to_native_delayed_delivery_exchange(connection, queue)
        app.send_task("charge", task_id="waits", queue=eu_shop.name, countdown=1)

        def take(queue: Queue) -> str | None:
            message = queue(connection.default_channel).get(no_ack=True)
            return None if message is None else str(message.headers["id"])

        assert eventually(lambda: take(eu_shop), 10, "its queue has it") == "waits"
        # All queues that match have got it by now: what comes after it would be the second.
        app.send_task("charge", task_id="next", queue=shop.name)
        assert eventually(lambda: take(shop), 10, "the other queue has the next one") == "next"


def done_once_each(stack: Stack, *placed: str) -> None:
    """Wait until they are done, and see that none is done twice."""
    eventually(lambda: set(placed) <= set(stack.done()), 30, "all are done")
    assert not set(placed) & set(twice(stack))


def letters_of(stack: Stack, *placed: str) -> dict[str, str]:
    """Wait for their dead letters; return why each is one."""

    def reasons() -> Counter[tuple[str, str]] | None:
        found = Counter((letter.origin, letter.ours["reason"]) for letter in stack.dead_letters("orders"))
        return found if {origin for origin, _ in found} >= set(placed) else None

    found: Counter[tuple[str, str]] = eventually(reasons, 60, "their dead letters")
    assert set(found.values()) == {1}
    return {origin: reason for origin, reason in found if origin in placed}


def test_each_record_is_done_once(world: World):
    placed = world.stack.produce("orders", *({"n": n} for n in range(30)))
    done_once_each(world.stack, *placed)
    world.all_settled()


def test_records_larger_than_a_frame_of_amqp_are_done_and_retried_like_others(world: World):
    """Headers, where a batch travels, must fit into one frame: a single large record stopped all hand-off."""
    large = "x" * 300_000
    values = [{"n": 1}, {"pad": large}, {"pad": large, "fail": 1}, {"pad": "x" * 98_000, "fail": 1}, {"n": 2}]
    placed = world.stack.produce("orders", *values, *({"pad": "x" * 1_000} for _ in range(300)))
    done_once_each(world.stack, *placed)
    world.all_settled()


def test_what_fails_and_what_asks_for_time_runs_again_until_it_is_done(world: World):
    failed, later = world.stack.produce("orders", {"fail": 2}, {"later": 1})
    done_once_each(world.stack, failed, later)
    assert [run.attempt for run in world.stack.runs("orders", failed)] == [1, 2, 3, 3]
    world.all_settled()


def test_what_waits_for_its_retry_holds_up_nothing_else(world: World):
    """A worker holds at most eight messages: more than that wait."""
    waiting = world.stack.produce("orders", *({"later": 1, "pause": 10.4} for _ in range(20)))
    eventually(lambda: {run.coordinates for run in world.stack.runs()} >= set(waiting), 30, "all have asked for time")
    placed = world.stack.produce("orders", *range(5))
    done_once_each(world.stack, *placed)
    assert not set(waiting) & set(world.stack.done())
    done_once_each(world.stack, *waiting)
    waits = {where: [run.time for run in world.stack.runs("orders", where)] for where in waiting}
    assert min(begun[1] - begun[0] for begun in waits.values()) >= 10.4
    world.all_settled()


def test_what_a_halted_topic_holds_back_holds_up_no_other_topic(world: World, tmp_path: Path):
    mended = tmp_path / "mended"
    stop = {"stop": str(mended)}
    held = [world.stack.produce("keyed", stop, key=f"held {n}".encode())[0] for n in range(20)]
    eventually(lambda: world.worker.text.count("it waits:") >= 8, 30, "as many are given back as a worker holds")
    placed = world.stack.produce("orders", *range(5))
    eventually(lambda: set(placed) <= set(world.stack.done()), 8, "all of the other topic are done")
    mended.touch()
    resume = world.stack.start("resume", sys.executable, "-m", "bridge", "resume", world.stack.topic("keyed"))
    assert eventually(lambda: resume.exit_code is not None, 30, "it is resumed")
    done_once_each(world.stack, *held)
    world.all_settled("keyed")


def test_what_runs_for_longer_than_rabbitmq_lets_a_consumer_hold_a_message_runs_once(world: World):
    slow, *behind = world.stack.produce("orders", {"sleep": 9}, *({"n": n} for n in range(3)))
    eventually(lambda: {slow, *behind} <= set(world.stack.done()), 40, "all are done")
    begun = Counter(run.coordinates for run in world.stack.runs("orders") if run.outcome == "begun")
    assert {begun[each] for each in (slow, *behind)} == {1}


def test_what_fails_for_good_is_one_dead_letter(world: World):
    exhausted, permanent = world.stack.produce("orders", {"fail": 9}, {"dead": True})
    assert letters_of(world.stack, exhausted, permanent) == {exhausted: "exhausted", permanent: "permanent"}
    world.all_settled()


def test_what_ran_in_a_process_that_is_killed_runs_again_and_its_neighbours_once(world: World):
    lost, *others = world.stack.produce("orders", {"kill": 1}, *range(5))
    done_once_each(world.stack, lost, *others)
    assert len(world.stack.runs("orders", lost)) == 3  # begun twice, done once
    assert world.worker.exit_code is None
    world.all_settled()


def test_what_kills_three_processes_is_poison(world: World):
    poison, *others = world.stack.produce("orders", {"kill": 9}, *range(5))
    assert letters_of(world.stack, poison) == {poison: "poison"}
    assert len(world.stack.runs("orders", poison)) == 3
    done_once_each(world.stack, *others)
    world.all_settled()


def test_each_keys_records_are_done_in_their_order_while_some_fail(world: World):
    keys = [b"a", b"b", b"c"]
    values = [{"fail": 2} if n == 3 else {"kill": 1} if n == 7 else {"n": n} for n in range(24)]
    placed = [world.stack.produce("keyed", value, key=keys[n % 3])[0] for n, value in enumerate(values)]
    done_once_each(world.stack, *placed)
    in_order(world.stack, "keyed")
    world.all_settled("keyed")


def test_what_comes_in_a_memory_alarm_is_done_after_it_and_at_most_one_of_it_twice(world: World):
    """RabbitMQ keeps each try of a hand-off until the alarm ends, and a bridge tries every 5 s."""
    failures = "bridge_handoff_failures_total"
    before = world.bridge.metric(failures)
    world.rabbitmq.block_publishers()
    try:
        placed = world.stack.produce("orders", {"n": 1})
        eventually(lambda: world.bridge.metric(failures) >= before + 4, 60, "it was tried four times")
    finally:
        world.rabbitmq.let_publishers_go_on()
    placed += world.stack.produce("orders", *({"n": n} for n in range(5)))
    eventually(lambda: set(placed) <= set(world.stack.done()), 60, "all are done")
    world.all_settled()
    assert sum(times - 1 for where, times in twice(world.stack).items() if where in placed) <= 1


def test_what_is_queued_and_what_waits_when_rabbitmq_is_killed_is_done_when_it_is_back(world: World):
    waiting = world.stack.produce("orders", *({"later": 1, "pause": 3} for _ in range(3)))
    queued = world.stack.produce("orders", *({"sleep": 0.2} for _ in range(20)))
    eventually(lambda: len(set(world.stack.done()) & set(queued)) >= 3, 30, "some are done")
    world.rabbitmq.kill()
    world.rabbitmq.start()
    placed = [*waiting, *queued, *world.stack.produce("orders", *range(3))]
    eventually(lambda: set(placed) <= set(world.stack.done()), 60, "all are done")
    # The worker has two processes, which went on while it could not acknowledge.
    assert len(set(twice(world.stack)) & set(placed)) <= 2
    world.all_settled()


def test_what_a_worker_held_that_is_killed_with_kill_9_is_done_by_the_next(world: World):
    placed = world.stack.produce("orders", *({"sleep": 0.3} for _ in range(20)))
    eventually(lambda: len(set(world.stack.done()) & set(placed)) >= 3, 30, "some are done")
    world.worker.kill()
    running = {run.coordinates for run in world.stack.runs("orders")} & set(placed) - set(world.stack.done())
    world.worker = world.stack.worker()
    eventually(lambda: set(placed) <= set(world.stack.done()), 60, "all are done")
    # With what was done in that moment and not acknowledged.
    assert len(running) <= 2
    assert len(set(twice(world.stack)) & set(placed)) <= 2
    assert not set(placed) & {letter.origin for letter in world.stack.dead_letters("orders")}
    world.all_settled()
    assert world.worker.terminate() == 0
