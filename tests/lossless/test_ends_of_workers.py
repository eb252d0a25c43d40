"""Workers that stop, brokers that refuse, and settings that would lose something."""

import contextlib
import fcntl
import json
import os
import re
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from lossless.worker.message_burial import read_count
from lossless.worker.poison_isolation import count_deaths
from tests.lossless.harness import ENDS_APP, Broker, Worker, entry, sender, wait_until, worker
from tests.project_process import children

NOTICED_WITHIN = 3
#: The ends hold on kombu's own transport too; of some of them the quick tests show one.
TRANSPORTS = ["lossless", pytest.param("kombu", marks=pytest.mark.slow)]
PREFORK: dict[str, dict[str, Any]] = {"fork": {}, "spawn": {"worker_pool_start_method": "spawn"}}


@contextlib.contextmanager
def ends(broker: Broker, folder: Path, transport: str, *arguments: str, **settings: Any) -> Iterator[Worker]:
    """A worker on which tasks come to their ends."""
    with worker(broker.url, folder, *arguments, app=ENDS_APP, transport=transport, **settings) as running:
        yield running


def test_a_process_that_is_killed_as_the_worker_starts_is_replaced_and_does_not_end_the_worker(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TEST_KILLED_AT_START", "1")
    with ends(broker, tmp_path, "lossless", "-c", "2") as running, sender(broker) as app:
        for number in range(2):
            app.send_task("sleeps", (2,), task_id=f"beside {number}")
        wait_until(lambda: len(broker.noted("runs")) == 2, 15, "two run beside each other, in two processes")
        assert not running.exited


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_on_sigterm_what_runs_has_its_time_and_the_rest_is_given_back_at_once(
    broker: Broker, tmp_path: Path, transport: str, start: str
):
    waits_in_redis = transport == "lossless"
    settings = {"worker_soft_shutdown_timeout": 2, "worker_prefetch_multiplier": 4, **PREFORK[start]}
    with ends(broker, tmp_path, transport, "-c", "3", **settings) as first, sender(broker) as app:
        app.send_task("until_told", task_id="short")
        app.send_task("sleeps", (60,), task_id="long")
        app.send_task("deaf", (60,), task_id="deaf")
        wait_until(lambda: len(broker.noted("runs")) == 3, 15, "three run")
        for name in ("one", "two", "three"):
            app.send_task("done", task_id=name)
        broker.push(entry("done", "due", eta=(datetime.now(UTC) + timedelta(hours=1)).isoformat()))
        wait_until(lambda: broker.taken() == 7 - waits_in_redis, 15, "the worker holds all")
        began = time.monotonic()
        first.signal(signal.SIGTERM)
        first.says("Warm shutdown")
        broker.notes.set("told", 1)
        wait_until(lambda: len(broker.queued()) == 4, 3, "what had not started is back")
        assert first.ends(15) == 0
        assert time.monotonic() - began > 1.5
    assert broker.noted("done") == ["short"]
    assert broker.taken() == 0
    back = {message["headers"]["id"]: message for message in broker.queued()}
    assert set(back) == {"long", "deaf", "one", "two", "three", "due"}
    assert all("lost" not in message["headers"] for message in back.values())
    assert [name for _, name, _ in broker.noted("runs")].count("short") == 1


def unread(process: int) -> int:
    """How many bytes lie in the pipes of a process."""
    found = 0
    for pipe in Path(f"/proc/{process}/fd").iterdir():
        if os.readlink(pipe).startswith("pipe:"):
            end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            found += int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), sys.byteorder)
            os.close(end)
    return found


def frozen_with(broker: Broker, worker: Worker, app: Celery, **options: Any) -> int:
    """Stop a worker's process, which has task "sent" in its pipe then."""
    app.send_task("done", task_id="before")  # a process that has just begun is sent nothing yet
    wait_until(lambda: broker.noted("done") == ["before"] and not broker.left(), what="the first has ended")
    (process,) = children(worker)
    os.kill(process, signal.SIGSTOP)
    app.send_task("done", task_id="sent", **options)
    worker.says("done[sent] received")
    wait_until(lambda: unread(process), what="it is in the pipe of the process")
    return process


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_on_sigterm_what_a_process_was_sent_and_has_not_accepted_yet_runs_once(
    broker: Broker, tmp_path: Path, transport: str
):
    """One that has just started, or has much to do, looks at it when the worker is closed already."""
    with ends(broker, tmp_path, transport) as first, sender(broker) as app:
        process = frozen_with(broker, first, app)
        first.signal(signal.SIGTERM)
        first.says("Warm shutdown")
        with ends(broker, tmp_path, transport):
            time.sleep(1)  # in which what was given back would run
            assert broker.noted("done") == ["before"]
            os.kill(process, signal.SIGCONT)
            assert first.ends(10) == 0
            assert broker.noted("done") == ["before", "sent"]
            assert not broker.left()


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_on_sigterm_a_process_that_does_not_begin_with_what_it_was_sent_has_no_more_time_than_one_that_runs(
    broker: Broker, tmp_path: Path, transport: str
):
    with ends(broker, tmp_path, transport, worker_soft_shutdown_timeout=1) as frozen, sender(broker) as app:
        frozen_with(broker, frozen, app)
        frozen.signal(signal.SIGTERM)
        assert frozen.ends(15) == 0
    (back,) = broker.queued()
    assert back["headers"]["id"] == "sent"
    assert "lost" not in back["headers"]
    assert broker.noted("done") == ["before"]
    assert not broker.taken()


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("wakes", [True, False])
def test_on_sigterm_what_a_process_was_sent_in_part_is_sent_whole_or_given_back(
    broker: Broker, tmp_path: Path, transport: str, wakes: bool
):
    """As the worker closes, its pool is closed already: nobody sent the rest, and both waited for ever."""
    with ends(broker, tmp_path, transport) as first, sender(broker) as app:
        process = frozen_with(broker, first, app, headers={"larger than a pipe": "x" * 300_000})
        first.signal(signal.SIGTERM)
        first.says("Warm shutdown")
        if wakes:
            os.kill(process, signal.SIGCONT)
        assert first.ends(15) == 0
    assert [message["headers"]["id"] for message in broker.queued()] == ([] if wakes else ["sent"])
    assert broker.noted("done") == (["before", "sent"] if wakes else ["before"])
    assert not broker.taken()


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_on_sigterm_what_runs_runs_to_its_end_where_it_has_no_limit(broker: Broker, tmp_path: Path, transport: str):
    with (
        ends(broker, tmp_path, transport, "-c", "2", worker_soft_shutdown_timeout=0) as stopped,
        sender(broker) as app,
    ):
        # Longer than KILL_AFTER and GIVE_BACK_AFTER of lossless/worker/graceful_shutdown.py.
        for name in ("sleeps", "early"):
            app.send_task(name, (5,), task_id=name)
        wait_until(lambda: len(broker.noted("runs")) == 2, what="both run")
        stopped.signal(signal.SIGTERM)
        assert stopped.ends(20) == 0
    assert sorted(broker.noted("done")) == ["early", "sleeps"]
    assert len(broker.noted("runs")) == 2
    assert not broker.left()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_on_sigterm_a_worker_that_runs_nothing_ends_at_once(broker: Broker, tmp_path: Path, transport: str):
    with ends(broker, tmp_path, transport, worker_soft_shutdown_timeout=60) as idle:
        began = time.monotonic()
        assert idle.terminate() == 0
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_message_waits_with_its_worker_while_the_broker_refuses_what_is_to_replace_it(
    broker: Broker, tmp_path: Path, transport: str
):
    with ends(broker, tmp_path, transport, lost_limit=1) as running, sender(broker) as app:
        app.send_task("until_told", task_id="killed")
        wait_until(lambda: broker.noted("runs"), what="it runs")
        broker.client.config_set("maxmemory", 1)
        (process,) = children(running)
        os.kill(process, signal.SIGKILL)
        if transport == "kombu":
            wait_until(lambda: running.count("could not be replaced") >= 3, what="three attempts")
        else:
            wait_until(lambda: "SIGKILL" in running.text, what="its process is lost")
        # This transport's scripts free before they grow: there it is the burial that cannot note anything.
        wait_until(lambda: (broker.taken() if transport == "kombu" else broker.left()) == 1, what="it is still there")
        broker.client.config_set("maxmemory", 0)
        # It is tried after 1, 2, 4, 8 and 16 s.
        (burial,) = wait_until(lambda: broker.noted("buried"), 40, "buried after all")
        assert (burial["id"], burial["reason"]) == ("killed", "poison")
        wait_until(lambda: not broker.left(), what="nothing is held")
        if transport == "lossless":
            return  # its keeper repeats by itself
        pauses = [int(pause) for pause in re.findall(r"next attempt in (\d+) s", running.text)]
        assert pauses == sorted(pauses)
        assert pauses[:3] == [1, 2, 4]


@pytest.mark.slow
def test_events_say_retried_and_in_the_end_failed(broker: Broker, tmp_path: Path):
    seen: list[dict[str, Any]] = []

    def states(name: str) -> list[str]:
        return [event["type"] for event in seen if event.get("uuid") == name]

    with (
        ends(broker, tmp_path, "lossless", "-E", lost_pauses=(0.1,)),
        sender(broker) as app,
        app.connection_for_read() as connection,
    ):
        receiver = app.events.Receiver(connection, handlers={"*": seen.append})
        listening = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        listening.start()
        try:
            # A heartbeat that it has heard: then the worker knows that somebody listens, whoever else subscribes.
            wait_until(lambda: seen, 20, "it hears the worker")
            app.send_task("killed", task_id="killed")
            app.send_task("rejected", task_id="rejected")
            wait_until(lambda: states("killed")[-1:] == states("rejected")[-1:] == ["task-failed"], 20)
        finally:
            receiver.should_stop = True
            listening.join(10)
    again = ["task-received", "task-started", "task-retried"]
    assert states("killed") == [*again, *again, "task-received", "task-started", "task-failed"]
    assert states("rejected") == ["task-received", "task-started", "task-failed"]
    assert "SIGKILL" in next(event for event in seen if event["type"] == "task-retried")["exception"]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lossless", "kombu"])
def test_a_lost_process_comes_back_after_one_second_and_then_after_five(broker: Broker, tmp_path: Path, transport: str):
    with ends(broker, tmp_path, transport) as running, sender(broker) as app:
        app.send_task("killed", task_id="killed")
        app.send_task("done", task_id="innocent")
        (burial,) = wait_until(lambda: broker.noted("buried"), 20, "buried")
        assert burial["lost"] == 3
        assert broker.noted("done") == ["innocent"]
        starts = [at for name, _, at in broker.noted("runs") if name == "killed"]
        first, second = (after - before for before, after in pairwise(starts))
        assert 1 <= first < 1 + NOTICED_WITHIN
        assert 5 <= second < 5 + NOTICED_WITHIN
        assert not running.exited


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_comes_back_after_a_lost_process_is_the_message_that_was_sent(
    broker: Broker, tmp_path: Path, transport: str
):
    sent = entry("killed", "killed", custom={"a": [1]}, retries=2)
    sent["properties"]["priority"] = 3
    with ends(broker, tmp_path, transport, lost_pauses=(3600,)):
        broker.push(sent)
        (back,) = wait_until(lambda: counted(broker))
    (loss,) = back["headers"]["losses"]
    assert loss.endswith("Z signal 9 (SIGKILL)")
    assert back["headers"] == sent["headers"] | {"lost": 1, "losses": [loss], "eta": back["headers"]["eta"]}
    assert back["body"] == sent["body"]
    changed = {"delivery_tag", "delivery_info"}
    kept = {name: value for name, value in sent["properties"].items() if name not in changed}
    assert {name: value for name, value in back["properties"].items() if name not in changed} == kept
    assert back["properties"]["delivery_info"]["redelivered"] is True
    assert back["properties"]["delivery_tag"] != sent["properties"]["delivery_tag"]


def counted(broker: Broker) -> list[dict[str, Any]]:
    """The copies that are counted as lost; on the plain transport the worker takes and holds them."""
    held = [json.loads(raw)[0] for raw in broker.client.hvals("unacked")]
    return [message for message in [*broker.queued(), *held] if "lost" in message["headers"]]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_workers_died_with_runs_once_more_and_is_poison_in_the_end(broker: Broker, tmp_path: Path, transport: str):
    with ends(broker, tmp_path, transport) as running:
        broker.push(entry("done", "second", restored=2))
        broker.push(entry("done", "sixth", restored=6))
        (burial,) = wait_until(lambda: broker.noted("buried"), what="buried")
        assert (burial["id"], burial["reason"], burial["restored"]) == ("sixth", "poison", 6)
        wait_until(lambda: broker.noted("done") == ["second"], what="the other ran")
        assert "6 workers and 0 single processes died while they held" in running.text


def over(victim: Worker, broker: Broker) -> bool:
    return victim.exited or not broker.left()


@pytest.mark.slow
def test_a_message_that_kills_whole_workers_is_found_among_innocent_ones(broker: Broker, tmp_path: Path):
    settings = {"broker_transport_options": {"dead_after": 1}, "restored_limit": 4}
    innocent = [f"innocent {number}" for number in range(3)]
    with sender(broker) as app:
        app.send_task("kills_its_worker", task_id="killer")
        for name in innocent:
            app.send_task("sleeps", (0.02,), task_id=name)
    deaths = 0
    # Until the burial is acknowledged too: whoever is killed between it and that leaves it to be done again.
    while broker.left():
        with ends(broker, tmp_path, "lossless", "-c", "4", wait=False, **settings) as victim:
            wait_until(partial(over, victim, broker), 30)
            deaths += victim.exited
    (burial,) = broker.noted("buried")
    assert (burial["id"], burial["reason"]) == ("killer", "poison")
    assert count_deaths(burial["restored"], read_count(burial["headers"], "prefetched")) == 4
    # The first death that came before its worker had heard that it had begun is not held against it.
    assert deaths in (4, 5)
    assert set(broker.noted("done")) == set(innocent)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_burial_is_never_buried_but_done_again(broker: Broker, tmp_path: Path, transport: str):
    settings = {"burial_task": "killed", "lost_limit": 1, "lost_pauses": (0.1,)}
    with ends(broker, tmp_path, transport, **settings):
        broker.push(entry("killed", "the burial"))
        wait_until(lambda: len(broker.noted("runs")) >= 4, what="it is done again and again")
    assert broker.noted("buried") == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"burial_task": "nowhere"}, "the task 'nowhere' (setting burial_task) is not registered"),
        ({"accept_content": ["yaml"]}, "accept_content must include json"),
    ],
)
def test_a_worker_that_would_lose_something_does_not_start(
    broker: Broker, tmp_path: Path, settings: dict[str, Any], said: str
):
    with worker(broker.url, tmp_path, app=ENDS_APP, wait=False, **settings) as refused:
        assert refused.ends(20) != 0
        assert said in refused.text


def test_a_pool_without_time_limits_says_whose_have_no_effect(broker: Broker, tmp_path: Path):
    with ends(broker, tmp_path, "lossless", "-P", "threads") as running:
        assert "enforces no time limits: those of hard_limit, soft_limit have no effect" in running.text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_solo_has_done_is_not_run_again_and_nothing_begins_once_it_is_told_to_stop(
    broker: Broker, tmp_path: Path, number: int
):
    settings = {"worker_prefetch_multiplier": 8, "broker_transport_options": {"dead_after": 1.5}}
    with ends(broker, tmp_path, "lossless", "-P", "solo", wait=False, **settings) as first, sender(broker) as app:
        for task in range(8):
            app.send_task("sleeps", (0.4,), task_id=str(task))
        wait_until(lambda: len(broker.noted("done")) >= 4)
        first.signal(number)
        first.ends()
        begun, done = len(broker.noted("runs")), len(broker.noted("done"))
        assert done <= begun <= done + (number == signal.SIGKILL)
        assert done < 8
    with ends(broker, tmp_path, "lossless", "-P", "solo", **settings):
        wait_until(lambda: len(set(broker.noted("done"))) == 8, 20, "all are done")
        wait_until(lambda: not broker.left())
    assert sorted(broker.noted("done")) == [str(task) for task in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_on_sigterm_what_ended_in_the_last_turn_of_the_event_loop_is_not_given_back(
    broker: Broker, tmp_path: Path, pool: str
):
    """A busy worker reads results in every turn, and their acknowledgements were left to the next one."""
    settings = {"worker_prefetch_multiplier": 16}
    with sender(broker) as app, ends(broker, tmp_path, "lossless", "-P", pool, "-c", "4", **settings) as stopped:
        for task in range(600):
            app.send_task("done", task_id=str(task))
        wait_until(lambda: len(broker.noted("done")) > 50)
        stopped.signal(signal.SIGTERM)
        assert stopped.ends(15) == 0
    done = broker.noted("done")
    back = [message["headers"]["id"] for message in broker.queued()]
    assert sorted(done + back, key=int) == [str(task) for task in range(600)]
    assert back


@pytest.mark.slow
def test_on_sigterm_what_a_threads_task_put_in_the_place_of_its_message_has_taken_that_place(
    broker: Broker, tmp_path: Path
):
    """A failed task is buried by its thread, and nothing of that waits for a turn of the event loop."""
    settings = {"worker_prefetch_multiplier": 16}
    with sender(broker) as app, ends(broker, tmp_path, "lossless", "-P", "threads", "-c", "4", **settings) as stopped:
        for task in range(600):
            app.send_task("rejected", task_id=str(task))
        wait_until(lambda: len(broker.noted("runs")) > 50)
        stopped.signal(signal.SIGTERM)
        assert stopped.ends(15) == 0
    ran = [task for _, task, _ in broker.noted("runs")]
    back = {message["headers"]["id"] for message in broker.queued() if message["headers"]["task"] == "rejected"}
    assert back
    assert not back & set(ran)
    assert len(ran) == len(set(ran))


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_after_kill_9_of_a_busy_worker_no_more_runs_again_than_ended_in_its_last_milliseconds(
    broker: Broker, tmp_path: Path, pool: str
):
    """Acknowledgements ride with the next take. Seen: none or one a kill, at 200 to 450 tasks a second."""
    processes = 4
    settings = {"worker_prefetch_multiplier": 16}
    arguments = ("-P", pool, "-c", str(processes))
    with sender(broker) as app, ends(broker, tmp_path, "lossless", *arguments, **settings) as killed:
        for task in range(600):
            app.send_task("done", task_id=str(task))
        wait_until(lambda: len(broker.noted("done")) > 100)
        killed.signal_all(signal.SIGKILL)
        killed.ends(5)
    assert len(set(broker.noted("done")) & held(broker)) <= 2 * processes


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGQUIT], [signal.SIGINT] * 2], ids=["SIGQUIT", "Ctrl-C twice"])
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_cold_shutdown_neither_loses_nor_fails_a_task_that_is_acknowledged_late(
    broker: Broker, tmp_path: Path, pool: str, signals: list[signal.Signals]
):
    with ends(broker, tmp_path, "lossless", "-P", pool) as stopped, sender(broker) as app:
        app.send_task("sleeps", (1.5,), task_id="late")
        wait_until(lambda: broker.noted("runs"), what="it runs")
        for number in signals:
            stopped.signal(number)
            stopped.says("Hitting Ctrl+C again will")
        stopped.ends(15)
    back = [message["headers"]["id"] for message in broker.queued()]
    assert not broker.noted("failures")
    assert [*broker.noted("done"), *back] == ["late"]


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_cold_shutdown_gives_back_what_has_not_begun_and_under_prefork_loses_a_task_that_is_acknowledged_early(
    broker: Broker, tmp_path: Path, pool: str
):
    """It runs at most once, as in Celery; under solo nothing can stop it."""
    with (
        ends(broker, tmp_path, "lossless", "-P", pool, worker_prefetch_multiplier=8) as stopped,
        sender(broker) as app,
    ):
        for name in ("runs", "waits"):
            app.send_task("early", (1.5,), task_id=name)
        wait_until(lambda: broker.noted("runs"), what="it runs")
        stopped.signal(signal.SIGQUIT)
        stopped.ends(15)
    assert not broker.noted("failures")
    assert broker.noted("done") == (["runs"] if pool == "solo" else [])
    assert [message["headers"]["id"] for message in broker.queued()] == ["waits"]
    assert not broker.taken()


def held(broker: Broker) -> set[str]:
    """The ids of what lies in the queue or with a worker, dead or alive."""
    taken = [broker.client.hgetall(key) for key in broker.client.scan_iter("_taken.*")]
    raw = [value.partition(b"\0")[2] for fields in taken for name, value in fields.items() if name != b"@"]
    return {message["headers"]["id"] for message in [*broker.queued(), *map(json.loads, raw)]}
