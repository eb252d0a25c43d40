"""The Celery app of the transport's tests: its tasks note what they do in the database next to the broker's."""

import json
import os
import signal
import time
import uuid
from typing import Any

import redis
from celery import Celery
from celery.signals import worker_ready
from kombu.asynchronous import get_event_loop

from lossless import transport

if os.environ.get("TEST_TRANSPORT") != "kombu":
    transport.use()

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1/0")

app = Celery("transport_app", broker=BROKER)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_prefetch_multiplier=4,
)
app.conf.update(json.loads(os.environ.get("TEST_SETTINGS", "{}")))
_marks: dict[int, redis.Redis] = {}


def marks() -> redis.Redis:
    """This process's client of the database next to the broker's."""
    if os.getpid() not in _marks:
        start, _, database = BROKER.rpartition(";")[2].rpartition("/")
        _marks[os.getpid()] = redis.Redis.from_url(f"{start}/{int(database) + 1}")
    return _marks[os.getpid()]


def note(name: str, value: Any) -> None:
    """Append to a list, however long Redis is away."""
    for _ in range(200):
        try:
            marks().rpush(name, json.dumps(value))
            return
        except redis.RedisError:
            marks().close()  # a replica by now, behind the same address
            time.sleep(0.1)


@worker_ready.connect
def fail_on_signal(**_: Any) -> None:
    """At SIGUSR2 the worker's main loop meets a connection error that the transport cannot wait out.

    It comes as one of the loop's events: raised wherever the signal meets it, it could end a generator of the hub's.
    """
    told, tell = os.pipe()

    def fail() -> None:
        os.read(told, 1)
        raise ConnectionResetError("a connection error from elsewhere")

    if (hub := get_event_loop()) is not None:
        hub.add_reader(told, fail)
    signal.signal(signal.SIGUSR2, lambda *_: os.write(tell, b"!"))


@app.task
def noop() -> None:
    """Nothing."""


@app.task
def doze(seconds: float) -> None:
    """Sleep, and note nothing."""
    time.sleep(seconds)


@app.task
def count(number: int) -> None:
    """Note once that this run of `number` took place, however often the connection is cut meanwhile."""
    run = f"{number}:{uuid.uuid4().hex}"
    for _ in range(600):
        try:
            marks().sadd("runs", run)
            return
        except redis.RedisError:
            time.sleep(0.05)


@app.task
def mark(number: int) -> None:
    """Note that it ran, and when."""
    note("ran", [number, time.time()])


@app.task(Request="lossless.worker.request:Request")
def mark_due(number: int) -> None:
    """The same, with this package's request."""
    note("ran", [number, time.time()])


@app.task
def nap(seconds: float, number: int = 0) -> None:
    """Note the start, sleep, note that it ran."""
    note("started", number)
    time.sleep(seconds)
    note("ran", [number, time.time()])


@app.task
def timed_nap(number: int, seconds: float) -> None:
    """Note when it began, and take `seconds` in all."""
    began = time.time()
    note("timed", [number, began])
    time.sleep(max(0.0, began + seconds - time.time()))
