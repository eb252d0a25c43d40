"""Task events cost nothing while nobody listens; whoever listens later sees what is under way and what comes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lossless.event_listeners import ALL, listeners, listening
from tests.lossless.harness import Broker, Worker, sender, wait_until, worker

Send = Callable[..., Any]
Start = Callable[..., Worker]


@contextmanager
def published(broker: Broker) -> Iterator[list[str]]:
    """What is published of tasks while the block lasts; looking counts as no listener."""
    found: list[str] = []
    with broker.client.monitor() as monitor:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                command = monitor.next_command()["command"]
                if command.startswith("PUBLISH /") and "celeryev/task." in command:
                    found.append(command)

        thread = threading.Thread(target=look)
        thread.start()
        yield found
        stop.set()
        broker.client.ping()  # so that the last wait ends
        thread.join(10)


def ended(broker: Broker, count: int) -> None:
    wait_until(lambda: len(broker.noted("ran")) >= count, 20, f"{count} ran")


def test_while_nobody_listens_a_look_a_second_is_all_that_is_sent(broker: Broker, start_worker: Start, send: Send):
    start_worker("-E")
    send("mark", 0)
    ended(broker, 1)
    time.sleep(0.3)
    with published(broker) as found:
        began = time.monotonic()
        for number in range(1, 61):
            send("mark", number)
        ended(broker, 61)
        seconds = time.monotonic() - began
    assert len(found) <= seconds + 2


@pytest.mark.slow
def test_a_listener_that_comes_later_sees_what_runs_from_then_on_whole_and_in_order(
    broker: Broker, start_worker: Start, send: Send
):
    start_worker("-E")
    for number in range(5):
        send("mark", number)
    ended(broker, 5)
    with listening(broker) as listener:
        wait_until(lambda: any(event["type"] == "worker-heartbeat" for event in listener.seen))
        names = [send("mark", number).id for number in range(5, 35)]
        wait_until(lambda: all(listener.types(name) == ALL for name in names), 10, "each is seen whole")
    for name in names:
        events = [event for event in listener.seen if event.get("uuid") == name]
        assert [event["timestamp"] for event in events] == sorted(event["timestamp"] for event in events)
        assert [event["clock"] for event in events] == sorted(event["clock"] for event in events)
        assert listener.state.tasks[name].name == "tests.lossless.transport_app.mark"
        assert listener.state.tasks[name].state == "SUCCESS"


def test_a_listener_sees_what_began_before_it_came(broker: Broker, start_worker: Start, send: Send):
    start_worker("-E")
    send("mark", 0)
    ended(broker, 1)
    began = time.time()
    running, waiting = send("nap", 4).id, send("nap", 0.1).id
    wait_until(lambda: broker.noted("started"), what="one runs")
    time.sleep(0.3)
    with listening(broker) as listener:
        wait_until(lambda: listener.types(running) == ALL[:2] and listener.types(waiting) == ALL[:1], 3, "it is told")
        task = listener.state.tasks[running]
        assert (task.name, task.state) == ("tests.lossless.transport_app.nap", "STARTED")
        assert began <= task.started < began + 2
        wait_until(lambda: listener.types(running) == listener.types(waiting) == ALL, 10)


@pytest.mark.slow
def test_a_listener_that_asks_nothing_of_the_workers_is_noticed_by_the_next_heartbeat(
    broker: Broker, start_worker: Start, send: Send
):
    start_worker("-E")
    send("mark", 0)
    ended(broker, 1)
    running = send("nap", 6).id
    wait_until(lambda: broker.noted("started"), what="it runs")
    with listening(broker, wakeup=False) as listener:
        wait_until(lambda: listener.types(running) == ALL[:2], 4, "it is told")


@pytest.mark.slow
def test_when_the_last_listener_has_closed_nothing_is_sent_again(broker: Broker, start_worker: Start, send: Send):
    start_worker("-E")
    with listening(broker) as one, listening(broker) as other:
        name = send("mark", 0).id
        wait_until(lambda: one.types(name) == other.types(name) == ALL, what="both see it")
        other.stop()
        name = send("mark", 1).id
        wait_until(lambda: one.types(name) == ALL, what="the other sees it still")
    ended(broker, 2)
    send("mark", 2)
    ended(broker, 3)
    time.sleep(0.3)
    with published(broker) as found:
        for number in range(3, 23):
            send("mark", number)
        ended(broker, 23)
    assert len(found) <= 4


def test_who_listens_to_another_database_is_nobody_here(broker: Broker, start_worker: Start, send: Send):
    start_worker("-E")
    with listening(broker, broker.url.rpartition("/")[0] + "/7") as listener:
        send("mark", 0)
        ended(broker, 1)
        time.sleep(0.3)
        with published(broker) as found:
            for number in range(1, 21):
                send("mark", number)
            ended(broker, 21)
        assert len(found) <= 4
        assert not [event for event in listener.seen if event["type"].startswith("task-")]


@pytest.mark.slow
def test_a_listener_sees_events_again_after_redis_was_away(broker: Broker, start_worker: Start, send: Send):
    start_worker("-E")
    send("mark", 0)
    ended(broker, 1)
    broker.restart()
    with listening(broker) as listener:

        def seen_whole() -> bool:
            name = send("mark", 1).id
            time.sleep(0.5)
            return listener.types(name) == ALL

        wait_until(seen_whole, 20, "one is seen whole")


@pytest.mark.slow
def test_a_frozen_listener_delays_nothing(broker: Broker, start_worker: Start, send: Send):
    start_worker("-E")
    code = f"from celery import Celery; app = Celery(broker={broker.url!r})"
    code += "; app.events.Receiver(app.connection()).capture()"
    with subprocess.Popen([sys.executable, "-c", code]) as frozen:
        try:
            wait_until(lambda: listeners(broker) == 2, what="it listens, beside the worker's control")
            frozen.send_signal(signal.SIGSTOP)
            for number in range(200):
                send("mark", number)
            ended(broker, 200)
        finally:
            os.kill(frozen.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_other_pools_tell_whoever_listens_too(broker: Broker, start_worker: Start, send: Send, pool: str):
    start_worker("-E", "-P", pool)
    send("mark", 0)
    ended(broker, 1)
    with listening(broker) as listener:
        wait_until(lambda: any(event["type"] == "worker-heartbeat" for event in listener.seen))
        names = [send("mark", number).id for number in range(1, 6)]
        wait_until(lambda: all(listener.types(name) == ALL for name in names), 10, "each is seen whole")


def test_what_is_sent_is_told_to_listeners_alone(broker: Broker):
    with sender(broker) as app, listening(broker) as listener:
        app.conf.task_send_sent_event = True
        name = app.send_task("nobody.knows").id
        wait_until(lambda: listener.types(name) == ["task-sent"], what="it is told")
        listener.stop()
        wait_until(lambda: not listeners(broker), what="nobody listens")
        with published(broker) as found:
            for _ in range(10):
                app.send_task("nobody.knows")
        assert len(found) == 1


def test_a_worker_of_kombus_own_transport_sends_as_ever(broker: Broker, tmp_path: Path, send: Send):
    with worker(broker.url, tmp_path, "-E", transport="kombu"):
        with published(broker) as found:
            for number in range(5):
                send("mark", number)
                ended(broker, number + 1)
        assert len(found) >= 5
        with listening(broker) as listener:
            name = send("mark", 5).id
            wait_until(lambda: listener.types(name) == ALL, what="it is seen")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_worker_that_is_told_to_stop_tells_of_its_last_tasks(
    broker: Broker, start_worker: Start, send: Send, seconds: float
):
    worker = start_worker("-E", "--without-heartbeat")
    with listening(broker) as listener:
        first = send("mark", 0).id
        wait_until(lambda: listener.types(first) == ALL, what="it is seen")
        name = send("nap", seconds).id
        key = "started" if seconds else "ran"
        wait_until(lambda: len(broker.noted(key)) == (1 if seconds else 2), what="it has begun, or ended")
        worker.signal(signal.SIGTERM)
        assert worker.ends(15) == 0
        wait_until(lambda: listener.types(name) == ALL, what="its end is told")


def test_who_has_a_heartbeat_sent_a_moment_before_it_listens_is_noticed(
    broker: Broker, start_worker: Start, send: Send
):
    start_worker("-E", "--without-heartbeat")
    send("mark", 0)
    ended(broker, 1)
    running = send("nap", 4).id
    wait_until(lambda: broker.noted("started"), what="it runs")
    with sender(broker) as app, published(broker) as found:
        app.control.broadcast("heartbeat")
        wait_until(lambda: found, what="the worker asks")
        with listening(broker, wakeup=False) as listener:
            wait_until(lambda: listener.types(running) == ALL[:2], 1.5, "it is told")
