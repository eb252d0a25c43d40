"""Tasks that end in every way a task can end; each notes what it sees in the database next to the broker's."""

import json
import os
import signal
import sys
import time
from typing import Any

import redis
from celery import Celery, Task
from celery.exceptions import Ignore, Reject
from celery.signals import worker_ready
from kombu.exceptions import OperationalError

from lossless import transport

if os.environ.get("TEST_TRANSPORT") != "kombu":
    transport.use()

app = Celery("ends", broker=os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0"))
app.conf.update(
    worker_consumer="lossless.worker.consumer:Consumer",
    burial_task="bury",
    unknown_for=0,
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    broker_connection_max_retries=None,
    broker_channel_error_retry=True,
)
app.conf.update(json.loads(os.environ.get("TEST_SETTINGS", "{}")))


def note(key: str, value: Any) -> None:
    start, _, database = app.conf.broker_url.rpartition("/")
    with redis.Redis.from_url(f"{start}/{int(database) + 1}") as client:
        client.rpush(key, json.dumps(value))


if "TEST_KILLED_AT_START" in os.environ:

    @worker_ready.connect
    def lose_a_process(**_: Any) -> None:
        """Before the worker looks whether its processes have started."""
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
            child = int(file.read().split()[0])
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


class Noted(Task[Any, Any]):
    Request = "lossless.worker.request:Request"
    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note("runs", [self.name, task_id, time.time()])

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("failures", [self.name, task_id, type(exc).__name__])


class RaisingOnFailure(Noted):
    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        raise RuntimeError("the dead letters are away")


class KilledOnFailure(Noted):
    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class MemoryOnFailure(Noted):
    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        raise MemoryError("no room for the dead letter")


class RequeueingOnFailure(Noted):
    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        raise Reject("the dead letters are away", requeue=True)


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)
        self.file = sys.stderr


class OwnBase(BaseException):
    pass


@app.task(name="bury", Request="lossless.worker.request:Request")
def bury(burial: dict[str, Any]) -> None:
    note("buried", burial)


def wants(headers: Any) -> bool:
    """For the setting `burial_wants`."""
    return bool(isinstance(headers, dict) and "record" in headers)


def task(**options: Any) -> Any:
    return app.task(bind=True, **{"base": Noted, **options})


@task(name="done")
def done(self: Task[Any, Any]) -> None:
    note("done", self.request.id)


@task(name="sleeps")
def sleeps(self: Task[Any, Any], seconds: float) -> None:
    time.sleep(seconds)
    note("done", self.request.id)


@task(name="until_told")
def until_told(self: Task[Any, Any]) -> None:
    start, _, database = app.conf.broker_url.rpartition("/")
    with redis.Redis.from_url(f"{start}/{int(database) + 1}") as client:
        while not client.exists("told"):
            time.sleep(0.05)
    note("done", self.request.id)


@task(name="early", acks_late=False)
def early(self: Task[Any, Any], seconds: float) -> None:
    time.sleep(seconds)
    note("done", self.request.id)


@task(name="deaf")
def deaf(self: Task[Any, Any], seconds: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(seconds)
    note("done", self.request.id)


@task(name="killed")
def killed(self: Task[Any, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="kills_its_worker")
def kills_its_worker(self: Task[Any, Any]) -> None:
    os.killpg(0, signal.SIGKILL)


@task(name="os_exit")
def os_exit(self: Task[Any, Any]) -> None:
    os._exit(3)


@task(name="sys_exit")
def sys_exit(self: Task[Any, Any]) -> None:
    sys.exit(1)


@task(name="keyboard")
def keyboard(self: Task[Any, Any]) -> None:
    raise KeyboardInterrupt


@task(name="generator_exit")
def generator_exit(self: Task[Any, Any]) -> None:
    raise GeneratorExit


@task(name="own_base")
def own_base(self: Task[Any, Any]) -> None:
    raise OwnBase("mine")


@task(name="memory")
def memory(self: Task[Any, Any]) -> None:
    raise MemoryError("no room")


@task(name="hard_limit", time_limit=1)
def hard_limit(self: Task[Any, Any]) -> None:
    note("overrun", [time.time(), "begin", os.getpid()])
    for _ in range(200):
        time.sleep(0.05)
        note("overrun", [time.time(), "alive", os.getpid()])


@task(name="soft_limit", soft_time_limit=1)
def soft_limit(self: Task[Any, Any]) -> None:
    time.sleep(20)


@task(name="error")
def error(self: Task[Any, Any]) -> None:
    raise ValueError("no")


@task(name="unpicklable")
def unpicklable(self: Task[Any, Any]) -> None:
    raise Unpicklable(1, 2)


@task(name="on_failure_raises", base=RaisingOnFailure)
def on_failure_raises(self: Task[Any, Any]) -> None:
    raise ValueError("no")


@task(name="on_failure_killed", base=KilledOnFailure)
def on_failure_killed(self: Task[Any, Any]) -> None:
    raise ValueError("no")


@task(name="on_failure_memory", base=MemoryOnFailure)
def on_failure_memory(self: Task[Any, Any]) -> None:
    raise ValueError("no")


@task(name="rejected")
def rejected(self: Task[Any, Any]) -> None:
    raise Reject("unwanted", requeue=False)


@task(name="requeued")
def requeued(self: Task[Any, Any]) -> None:
    if self.request.get("requeued", 0) < 2:
        raise Reject("later", requeue=True)
    note("done", self.request.id)


@task(name="on_failure_requeues", base=RequeueingOnFailure)
def on_failure_requeues(self: Task[Any, Any]) -> None:
    if self.request.get("requeued", 0) == 0:
        raise ValueError("no")
    note("done", self.request.id)


@task(name="rejected_in_the_end", autoretry_for=(Exception,), max_retries=2, retry_kwargs={"countdown": 0})
def rejected_in_the_end(self: Task[Any, Any]) -> None:
    raise Reject("unwanted", requeue=False)


@task(name="mutates")
def mutates(self: Task[Any, Any], items: list[Any], how: str) -> None:
    note("mutates", items)
    items.append("mutated")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Reject("unwanted", requeue=False)


@task(name="ignored")
def ignored(self: Task[Any, Any]) -> None:
    raise Ignore


@task(name="retried", autoretry_for=(ValueError,), max_retries=2, retry_kwargs={"countdown": 0})
def retried(self: Task[Any, Any]) -> None:
    raise ValueError(f"retry {self.request.retries}")


@task(name="unpublished_retry", autoretry_for=(ValueError,), max_retries=2)
def unpublished_retry(self: Task[Any, Any]) -> None:
    if self.request.get("requeued", 0) == 1:
        note("done", self.request.id)
        return
    send = self.app.amqp.send_task_message

    def away(*args: Any, **options: Any) -> None:
        self.app.amqp.__dict__["send_task_message"] = send
        raise OperationalError("the broker is away")

    self.app.amqp.__dict__["send_task_message"] = away
    raise ValueError("again")
