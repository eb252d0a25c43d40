"""What the tests of `lossless` run: a database of a real Redis to look into, and real Celery workers on it."""

import base64
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from celery import Celery

from tests.project_process import ROOT, Process, eventually
from tests.servers.redis import RedisServer

TRANSPORT_APP = "tests.lossless.transport_app"
ENDS_APP = "tests.lossless.ends_app"
#: Times so short that the dead are found within a test's patience.
QUICK: dict[str, Any] = {"dead_after": 1.5, "socket_timeout": 2, "socket_connect_timeout": 2}


def wait_until(condition: Callable[[], Any], within: float = 15.0, what: str = "") -> Any:
    """The condition's first true value; a Redis that does not answer is no answer yet."""

    def quietly() -> Any:
        with suppress(redis.RedisError):
            return condition()

    return eventually(quietly, within, what)


class Broker:
    """A database of a Redis, for one worker or more; the tasks of the test apps note what they see in the next one."""

    def __init__(self, server: RedisServer, database: int = 0) -> None:
        self.server = server
        self.database = database
        self.port = int(urlsplit(server.url).port or 0)
        # Any: redis-py types an answer as all that it could be with other options.
        self.client: Any = redis.Redis(port=self.port, db=database, socket_timeout=5)
        self.notes: Any = redis.Redis(port=self.port, db=database + 1, socket_timeout=5)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/{self.database}"

    def noted(self, key: str) -> list[Any]:
        """What the tasks have noted under `key`, in order."""
        return [json.loads(value) for value in self.notes.lrange(key, 0, -1)]

    def push(self, entry: dict[str, Any] | bytes) -> None:
        """Put an entry into the default queue as it is."""
        self.client.lpush("celery", entry if isinstance(entry, bytes) else json.dumps(entry))

    def queued(self) -> list[dict[str, Any]]:
        """The messages in the default queue, those included that wait for their time beside it."""
        waiting = self.client.zrange("_waiting.celery", 0, -1)
        entries = [value.partition(b"\0")[2] for value in waiting]
        return [json.loads(value) for value in [*self.client.lrange("celery", 0, -1), *entries]]

    def taken(self) -> int:
        """How many messages workers hold, by kombu's records and by those of this transport."""
        owners = [self.client.hkeys(key) for key in self.client.scan_iter("*_taken.*")]
        return int(self.client.hlen("unacked") + sum(field != b"@" for fields in owners for field in fields))

    def left(self) -> int:
        """How many messages of the default queue there are, wherever they are."""
        return len(self.queued()) + self.taken()

    def cut(self) -> None:
        """Cut all connections but one's own."""
        self.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def restart(self, down: float = 0.5) -> None:
        """Stop the server, and start it `down` seconds later."""
        self.server.stop()
        time.sleep(down)
        self.server.start()

    def close(self) -> None:
        self.client.close()
        self.notes.close()


class Worker(Process):
    """`celery -A APP worker -c 1`; returns from the constructor when it is ready.

    Parameters: the broker's URL, a folder for its log, further arguments of the command; the app's module, the
    transport ("lossless", or "kombu" for the plain one), whether to look for no neighbours, and Celery's settings.
    """

    def __init__(
        self,
        broker: str,
        folder: Path,
        *arguments: str,
        app: str = TRANSPORT_APP,
        transport: str = "lossless",
        level: str = "INFO",
        wait: bool = True,
        alone: bool = True,
        **settings: Any,
    ) -> None:
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", level, "-c", "1"]
        environ = {
            **os.environ,
            "CELERY_BROKER_URL": broker,
            "TEST_TRANSPORT": transport,
            "TEST_SETTINGS": json.dumps(settings),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
        }
        neighbours = ["--without-gossip", "--without-mingle"] if alone else []
        super().__init__(
            "worker",
            [*command, "-n", f"{uuid.uuid4().hex}@test", *neighbours, *arguments],
            environ,
            folder,
        )
        if wait:
            self.says(" ready.")

    @property
    def exited(self) -> bool:
        return self.exit_code is not None

    def signal_all(self, number: int) -> None:
        """Send a signal to the main process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def freeze(self) -> None:
        self.signal_all(signal.SIGSTOP)


@contextmanager
def worker(broker: str, folder: Path, *arguments: str, **options: Any) -> Iterator[Worker]:
    """A worker that is killed when its block ends; the parameters are those of `Worker`."""
    started = Worker(broker, folder, *arguments, **options)
    try:
        yield started
    finally:
        started.kill()


@contextmanager
def sender(broker: Broker) -> Iterator[Celery]:
    """A Celery app to send and to control with."""
    app = Celery("sender", broker=broker.url)
    try:
        yield app
    finally:
        app.close()


def entry(name: str | None, task_id: str | None, body: Any = None, **headers: Any) -> dict[str, Any]:
    """A queue entry as kombu writes it (kombu/transport/virtual/base.py), with any headers and any body."""
    named = {"task": name, "id": task_id, "lang": "py"}
    raw = body if isinstance(body, bytes) else json.dumps([[], {}, {}] if body is None else body).encode()
    return {
        "body": base64.b64encode(raw).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {key: value for key, value in named.items() if value is not None} | headers,
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }
