"""Idle workers share what comes, and cost nothing while they wait."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue
from kombu.transport.redis import Transport as PlainTransport

from lossless.transport.message_fetch import MessageFetcher
from lossless.transport.script_hook import UNHOOKED
from lossless.transport.transport_scripts import RING_IDLE_OWNERS
from tests.lossless.harness import QUICK, Broker, Worker, wait_until

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]
PAYLOAD = "x" * 10_000


class Idlers:
    """Consumers that wait in one process, each with a connection of its own, as workers do."""

    def __init__(self, broker: Broker, count: int, queues: int = 1, url: str | None = None) -> None:
        self.broker = broker
        self.url = url or broker.url
        self.got: list[str] = []
        self._stop = threading.Event()
        self.queues = [Queue(f"q{number}", routing_key=f"q{number}") for number in range(queues)]
        self._threads = [threading.Thread(target=self._consume) for _ in range(count)]
        self.failures: list[BaseException] = []

    def _consume(self) -> None:
        def on_message(body: Any, message: Any) -> None:
            self.got.append(body)
            message.ack()

        try:
            with (
                Connection(self.url, transport_options=QUICK) as connection,
                Consumer(connection, self.queues, callbacks=[on_message], prefetch_count=4),
            ):
                while not self._stop.is_set():
                    with suppress(TimeoutError):
                        connection.drain_events(timeout=0.5)
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self) -> "Idlers":
        for thread in self._threads:
            thread.start()
        idle = f"_idle.{self.queues[-1].name}"
        wait_until(lambda: self.failures or self.broker.client.zcard(idle) == len(self._threads), 20, "all are idle")
        assert not self.failures
        wait_until(lambda: self.broker.client.exists("_lookout"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def publish(broker: Broker) -> Iterator[Callable[..., None]]:
    """Publish by kombu's own transport."""
    with Connection(broker.url, transport=PlainTransport) as connection:
        producer = connection.Producer()

        def publish(body: str, queue: str = "q0") -> None:
            producer.publish(body, routing_key=queue, declare=[Queue(queue, routing_key=queue)])

        yield publish


def spent(broker: Broker) -> tuple[int, int]:
    """Commands that Redis has run, those in scripts too, and bytes that it has sent."""
    commands = sum(one["calls"] for one in broker.client.info("commandstats").values())
    return commands, broker.client.info("stats")["total_net_output_bytes"]


def cost_of_a_message(broker: Broker, publish: Callable[..., None], idle: int) -> tuple[float, float]:
    messages = 20
    with Idlers(broker, idle) as idlers:
        before = spent(broker)
        started = time.monotonic()
        for number in range(messages):
            publish(PAYLOAD)
            wait_until(partial(_has, idlers.got, number + 1))
        after, seconds = spent(broker), time.monotonic() - started
        time.sleep(min(2.0, max(0.5, seconds)))  # what goes on anyway is measured, and taken off
        rest, quiet = spent(broker), time.monotonic() - started - seconds
    commands, sent = (
        (then - first - (last - then) * seconds / quiet) / messages
        for first, then, last in zip(before, after, rest, strict=True)
    )
    return commands, sent


def _has(got: list[str], count: int) -> bool:
    return len(got) >= count


LISTS = ["q", *(f"q\x06\x16{step}" for step in (3, 6, 9))]


def count_commands(broker: Broker) -> dict[str, int]:
    """Return how often each command ran since the last count, those in scripts too."""
    counted: Any = broker.client.info("commandstats")
    broker.client.config_resetstat()
    ran = {name.removeprefix("cmdstat_"): each["calls"] for name, each in counted.items()}
    return {name: calls for name, calls in ran.items() if not name.startswith(("config", "info", "lpush"))}


def test_a_ring_costs_few_commands(broker: Broker) -> None:
    def ring(renew: int = 0) -> Any:
        terms = ["me", 1000, "_bell.", 0.1, 15, 0, "_gates", "_aside", renew, len(LISTS)]
        return RING_IDLE_OWNERS.run(broker.client, ["_lookout", "_idle", "_idle.q", *LISTS], terms)

    with broker.client.pubsub() as bell:
        bell.subscribe("_bell.owner")
        bell.get_message(timeout=1)
        broker.client.zadd("_idle.q", {"owner": time.time(), "gone for long": time.time() - 60})
        ring(renew=1)
        count_commands(broker)
        assert ring()[1] == 0
        assert count_commands(broker) == {"evalsha": 1, "get": 1, "exists": 2, "zcard": 1, "smembers": 1}
        broker.client.lpush("q", "message")
        count_commands(broker)
        assert ring()[1] == 1
        assert sum((ran := count_commands(broker)).values()) == 13, ran
        assert bell.get_message(timeout=1)["type"] == "message"


def test_a_take_that_finds_nothing_costs_few_commands(broker: Broker) -> None:
    def take() -> Any:
        terms = ["", 1, 2, 1, "1", "0", 2, "owner", "-1", "_gates", "_aside", 500, 1, "_taken", 0, 0, 0]
        return UNHOOKED.take.run(broker.client, ["_taken.owner", "_idle", "_idle.q", *LISTS], terms)

    take()
    assert broker.client.smembers("_idle") == {"\0".join(["_idle.q", *LISTS]).encode()}
    count_commands(broker)
    assert take()[6:] == []
    assert count_commands(broker) == {"evalsha": 1, "time": 1, "exists": 2, "rpop": 1, "zadd": 1}
    broker.client.lpush(LISTS[2], "message")
    assert take()[6:] == [2, b"message", b""]


@pytest.mark.slow
def test_the_cost_of_a_message_does_not_grow_with_the_idle(broker: Broker, publish: Callable[..., None]) -> None:
    _, few_sent = cost_of_a_message(broker, publish, 1)
    commands, sent = cost_of_a_message(broker, publish, 20)
    assert sent < few_sent + len(PAYLOAD), "only one of the idle gets a message"
    assert commands < 200


@pytest.mark.slow
@pytest.mark.parametrize(("queues", "most"), [(1, 40), (201, 200)])
def test_what_a_message_of_a_backlog_costs_hardly_grows_with_the_queues_of_its_worker(
    broker: Broker,
    start_worker: Callable[..., Worker],
    send: Callable[..., object],
    ran: Callable[[], list[int]],
    queues: int,
    most: int,
) -> None:
    """Seen: 15 commands with one queue, 85 with 201, of which most are the notifier's; before, 17 and 462.

    A busy machine takes them in more and smaller rounds.
    """
    start_worker("-Q", ",".join(["celery", *(f"q{number}" for number in range(1, queues))]))
    send("mark", 0)
    wait_until(lambda: ran() == [0])
    before, _ = spent(broker)
    for number in range(1, 201):
        send("mark", number)
    wait_until(lambda: len(ran()) == 201, 60)
    after, _ = spent(broker)
    assert (after - before) / 200 < most


def test_a_burst_is_shared_by_idle_workers_before_anybody_prefetches(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    for _ in range(4):
        start_worker()
    wait_until(lambda: broker.client.zcard("_idle.celery") == 4)
    for number in range(4):
        send("nap", 3, number)
    wait_until(lambda: broker.notes.llen("started") == 4, 2.5, "all begin before the first ends")
    for number in range(4, 8):
        send("nap", 0, number)
    wait_until(lambda: sorted(ran()) == list(range(8)))


def test_a_message_that_has_to_wait_runs_on_the_worker_that_is_free_first(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    for _ in range(2):
        start_worker()
    wait_until(lambda: broker.client.zcard("_idle.celery") == 2)
    send("nap", 8, 0)
    wait_until(lambda: broker.notes.llen("started") == 1)
    send("nap", 1, 1)
    wait_until(lambda: broker.notes.llen("started") == 2)
    for number in range(2, 5):
        send("nap", 0, number)
    wait_until(lambda: sorted(ran()) == [1, 2, 3, 4], 5, "none of them waits behind the long one")


def test_of_a_long_queue_each_worker_takes_some_ahead(broker: Broker, start_worker: Start, send: Send) -> None:
    for _ in range(2):
        start_worker()
    wait_until(lambda: broker.client.zcard("_idle.celery") == 2)
    for number in range(200):
        send("nap", 0.5, number, queue="aside")
    broker.client.rename("aside", "celery")
    wait_until(lambda: broker.taken() == 8, 20, "no process idles while it is handed its next message")


def test_a_worker_alone_takes_ahead_up_to_its_prefetch_limit(broker: Broker, start_worker: Start, send: Send) -> None:
    start_worker()
    for number in range(6):
        send("nap", 5, number)
    wait_until(lambda: broker.taken() == 4, 3)


def test_who_took_as_much_as_it_could_begin_with_is_rung_first_again_once_that_has_ended(
    broker: Broker, publish: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with the event loop of a worker: more than it can begin with is asked for.
    monkeypatch.setattr(MessageFetcher, "_limit", lambda taker: taker.channel.take_limit)

    def score() -> float:
        return float(broker.client.zscore("_idle.q0", broker.client.zrange("_idle.q0", 0, -1)[0]))

    taken: list[Any] = []
    with (
        Connection(broker.url, transport_options=QUICK) as connection,
        Consumer(
            connection, [Queue("q0", routing_key="q0")], callbacks=[lambda _, m: taken.append(m)], prefetch_count=4
        ),
    ):

        def drained(until: Callable[[], Any]) -> bool:
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.05)
            return bool(until())

        wait_until(lambda: drained(lambda: broker.client.zcard("_idle.q0")))
        publish("one")
        wait_until(lambda: drained(lambda: taken))
        wait_until(lambda: drained(lambda: score() >= 1e12), what="it is noted as one that cannot begin at once")
        taken[0].ack()
        wait_until(lambda: drained(lambda: score() < 1e12), 2, "it is noted as one that can")


@pytest.mark.slow
@pytest.mark.parametrize("end", [Worker.freeze, Worker.kill])
def test_a_worker_that_freezes_or_dies_idle_holds_up_nothing(
    broker: Broker, start_worker: Start, send: Send, ran: Ran, end: Callable[[Worker], None]
) -> None:
    others = [start_worker() for _ in range(2)]
    start_worker()
    wait_until(lambda: broker.client.zcard("_idle.celery") == 3)
    for worker in others:  # the notifier may be among them
        end(worker)
    for number in range(6):
        send("mark", number)
        wait_until(lambda number=number: number in ran(), 4)  # type: ignore[misc]
    wait_until(lambda: not broker.taken())


def test_a_redis_that_tells_of_no_changes_is_looked_at(broker: Broker, publish: Callable[..., None]) -> None:
    narrow = ["+@all", "-client|tracking"]
    broker.client.acl_setuser("narrow", enabled=True, passwords=["+x"], keys=["*"], channels=["*"], commands=narrow)
    with Idlers(broker, 3, url=broker.url.replace("//", "//narrow:x@")) as idlers:
        for number in range(5):
            at = time.monotonic()
            publish(str(number))
            wait_until(partial(_has, idlers.got, number + 1))
            assert time.monotonic() - at < 2, "not the 5 s after which each looks for itself"


def test_a_foreign_value_beside_a_queue_keeps_nobody_asleep(broker: Broker, publish: Callable[..., None]) -> None:
    with Idlers(broker, 2) as idlers:
        member = b"_idle.foreign\0foreign"
        broker.client.sadd("_idle", member)
        broker.client.zadd("_idle.foreign", {"nobody": time.time()})
        broker.client.set("foreign", "no list")
        for number in range(3):
            publish(str(number))
            wait_until(partial(_has, idlers.got, number + 1), 3)


def test_connections_do_not_grow_with_the_queues(broker: Broker, start_worker: Start, send: Send, ran: Ran) -> None:
    def connections(queues: int) -> int:
        names = [f"c{number}" for number in range(queues)]
        before = {one["id"] for one in broker.client.client_list()}
        worker = start_worker("-Q", ",".join(names))
        for number, name in enumerate(names):
            send("mark", queues * 100 + number, queue=name)
        wait_until(lambda: len([number for number in ran() if number // 100 == queues]) == queues)
        wait_until(lambda: broker.client.zcard(f"_idle.{names[-1]}") == 1)
        found = [one for one in broker.client.client_list() if one["id"] not in before]
        worker.kill()
        broker.client.flushdb()
        return len(found)

    one = connections(1)
    assert connections(10) <= one + 2, "the notifier's and the sender's may come late"
    assert one <= 16


def test_many_consumers_of_one_process_share_what_tends_them(
    broker: Broker, publish: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with Idlers(broker, 30, queues=2) as idlers:
        for number in range(300):
            publish(str(number), f"q{number % 2}")
        wait_until(lambda: len(idlers.got) == 300)
        wait_until(lambda: not broker.taken())
    assert not idlers.failures
    assert "MaxConnectionsError" not in caplog.text


def test_nothing_is_kept_for_each_order_of_the_queues(broker: Broker) -> None:
    names = [f"q{number}" for number in range(6)]
    with Connection(broker.url) as connection:
        channel: Any = connection.channel()
        taker = MessageFetcher(channel)
        for order in itertools.permutations(names):
            taker._lists_of(list(order))
        assert sum(len(lists) for lists in taker._lists_kept.values()) == 6 * len(channel.priority_steps)
