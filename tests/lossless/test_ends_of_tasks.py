"""Every end of a task's run, with real workers: done, retried, or buried with its reason."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.lossless.harness import ENDS_APP, Broker, Worker, sender, wait_until, worker
from tests.servers.redis import RedisServer

#: name: pool, settings.
POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "fork": ("prefork", {}),
    "spawn": ("prefork", {"worker_pool_start_method": "spawn"}),
    "threads": ("threads", {}),
    "solo": ("solo", {}),
}


@dataclass(frozen=True)
class End:
    """What becomes of a task. `noted`: where it says itself that it was taken care of."""

    task: str
    runs: int = 1
    noted: str | None = None
    reason: str | None = None
    error: str = ""
    message: str = ""
    needs_processes: bool = False
    #: A process that spawns costs half a second: not every end of it is in the quick tests.
    quick_by_spawn: bool = False


ENDS = (
    End("done", noted="done", quick_by_spawn=True),
    End("error", noted="failures", error="ValueError"),
    End("unpicklable", noted="failures", error="UnpickleableExceptionWrapper"),
    End("memory", noted="failures", error="MemoryError"),
    End("ignored"),
    End("retried", 3, "failures", error="ValueError", quick_by_spawn=True),
    End("unpublished_retry", runs=2, noted="done"),
    End("requeued", runs=3, noted="done"),
    End("rejected", 1, None, "rejected", "Reject", "unwanted", quick_by_spawn=True),
    End("on_failure_requeues", runs=2, noted="done"),
    End("rejected_in_the_end", 3, None, "rejected", "Reject", "unwanted"),
    End("sys_exit", 3, None, "poison", "WorkerLostError", "exitcode 1", quick_by_spawn=True),
    End("keyboard", runs=3, reason="poison", error="WorkerLostError", message="KeyboardInterrupt"),
    End("generator_exit", runs=3, reason="poison", error="GeneratorExit"),
    End("own_base", runs=3, reason="poison", error="OwnBase", message="mine"),
    End("on_failure_raises", 1, None, "failed", "RuntimeError", "the dead letters are away", quick_by_spawn=True),
    End("on_failure_memory", runs=3, reason="poison", error="MemoryError"),
    End("killed", 3, None, "poison", "WorkerLostError", "SIGKILL", needs_processes=True, quick_by_spawn=True),
    End("os_exit", 3, None, "poison", "WorkerLostError", "exitcode 3", needs_processes=True),
    End("on_failure_killed", 3, None, "poison", "WorkerLostError", "SIGKILL", needs_processes=True),
    End("hard_limit", 3, None, "poison", "TimeLimitExceeded", "1", needs_processes=True),
    End("soft_limit", noted="failures", error="SoftTimeLimitExceeded", needs_processes=True),
)


@dataclass(frozen=True)
class Place:
    """A worker on which tasks come to their ends."""

    transport: str
    pool: str
    quick: bool

    def __str__(self) -> str:
        return f"{self.transport}-{self.pool}{'' if self.quick else '-all'}"

    def holds(self, end: End) -> bool:
        if end.needs_processes and POOLS[self.pool][0] != "prefork":
            return False  # a dead process is a dead worker there, and there are no time limits
        return self.pool != "spawn" or not self.quick or end.quick_by_spawn

    @property
    def ends(self) -> list[End]:
        return [end for end in ENDS if self.holds(end)]


QUICK = [
    Place("lossless", "fork", quick=True),
    Place("lossless", "spawn", quick=True),
    Place("lossless", "threads", quick=True),
    Place("kombu", "fork", quick=True),
]
SLOW = [
    Place("lossless", "solo", quick=False),
    Place("lossless", "spawn", quick=False),
    *(Place("kombu", pool, quick=False) for pool in list(POOLS)[1:]),
]
ALL = [pytest.param(place, end, id=f"{place}-{end.task}") for place in QUICK for end in place.ends]
ALL += [
    pytest.param(place, end, id=f"{place}-{end.task}", marks=pytest.mark.slow) for place in SLOW for end in place.ends
]


@pytest.fixture(scope="module")
def brokers(
    request: pytest.FixtureRequest, mortal_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Place, Broker]]:
    """A database for each place that is tested, where a worker has come to the end of every task."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    places = {call.params["ended"]: None for call in calls if call and isinstance(call.params.get("ended"), Place)}
    found: dict[Place, Broker] = {}
    with ExitStack() as stack:
        running: dict[Place, Worker] = {}
        for place in places:
            found[place] = broker = Broker(mortal_redis, mortal_redis.fresh_database())
            stack.callback(broker.close)
            with sender(broker) as app:
                for end in place.ends:
                    app.send_task(end.task, task_id=end.task)
            folder = tmp_path_factory.mktemp(str(place))
            running[place] = stack.enter_context(start(place, broker, folder))
        for place, broker in found.items():
            wait_until(partial(all_over, place, broker), 60, f"all is over on {place}")
            assert not running[place].exited, "the worker must not stop"
            if place.pool == "spawn":
                assert "SpawnPoolWorker" in running[place].text
        yield found


def start(place: Place, broker: Broker, folder: Any) -> Any:
    pool, settings = POOLS[place.pool]
    return worker(
        broker.url, folder, "-P", pool, "-c", "2", app=ENDS_APP, transport=place.transport, wait=False,
        lost_pauses=(0.1, 0.2), **settings,
    )  # fmt: skip


def all_over(place: Place, broker: Broker) -> bool:
    return all(is_over(broker, end) for end in place.ends) and not broker.left()


def is_over(broker: Broker, end: End) -> bool:
    if end.noted == "done":
        return end.task in broker.noted("done")
    if end.noted == "failures":
        return any(task == end.task for task, _, _ in broker.noted("failures"))
    if end.reason:
        return any(burial["task"] == end.task for burial in broker.noted("buried"))
    return any(task == end.task for task, _, _ in broker.noted("runs"))


@pytest.fixture
def ended(request: pytest.FixtureRequest, brokers: dict[Place, Broker]) -> Broker:
    return brokers[request.param]


@pytest.mark.parametrize(("ended", "end"), ALL, indirect=["ended"])
def test_an_end_is_never_silent(ended: Broker, end: End):
    assert Counter(task for task, _, _ in ended.noted("runs"))[end.task] == end.runs
    burials = [burial for burial in ended.noted("buried") if burial["task"] == end.task]
    failures = [error for task, _, error in ended.noted("failures") if task == end.task]
    assert failures == ([end.error] if end.noted == "failures" else [])
    if end.reason is None:
        assert burials == []
        return
    (burial,) = burials
    assert (burial["id"], burial["reason"], burial["error_class"]) == (end.task, end.reason, end.error)
    assert end.message in burial["error_message"]
    assert burial["lost"] == (3 if end.reason == "poison" else 0)
    assert burial["queue"] == "celery"


@pytest.fixture
def beside(mortal_redis: RedisServer) -> Iterator[Broker]:
    """A database of its own, on the server that has those of the places: not emptied, as `broker` is."""
    broker = Broker(mortal_redis, mortal_redis.fresh_database())
    yield broker
    broker.close()


@pytest.mark.parametrize("how", ["killed", "rejected"])
def test_what_a_task_made_of_its_arguments_goes_nowhere(beside: Broker, tmp_path: Path, how: str):
    with worker(beside.url, tmp_path, app=ENDS_APP, lost_pauses=(0.1, 0.2)), sender(beside) as app:
        app.send_task("mutates", (["as sent"], how))
        (burial,) = wait_until(lambda: beside.noted("buried"), what="it is buried")
        assert set(map(tuple, beside.noted("mutates"))) == {("as sent",)}
        assert json.loads(base64.b64decode(burial["body"]))[0] == [["as sent"], how]


def test_a_result_backend_that_is_down_loses_neither_failures_nor_what_could_not_be_stored(
    beside: Broker, tmp_path: Path
):
    policy = {"max_retries": 0, "interval_start": 0, "interval_step": 0, "interval_max": 0}
    settings: dict[str, Any] = {
        "task_ignore_result": False,
        "result_backend": "redis://127.0.0.1:1/0",
        "result_backend_transport_options": {"retry_policy": policy},
    }
    with worker(beside.url, tmp_path, app=ENDS_APP, **settings), sender(beside) as app:
        app.send_task("error", task_id="fails")
        app.send_task("done", task_id="succeeds")
        burials = wait_until(lambda: len(found := beside.noted("buried")) == 2 and found, 30, "both are buried")
        # What succeeded too: from outside the two look alike, and a result is lost.
        assert {burial["id"]: burial["reason"] for burial in burials} == {"fails": "failed", "succeeds": "failed"}
        wait_until(lambda: not beside.left(), what="nothing is left")


@pytest.mark.parametrize("ended", [QUICK[0], QUICK[-1]], indirect=True, ids=str)
def test_a_run_over_its_hard_limit_is_dead_before_the_next_begins(ended: Broker):
    seen = ended.noted("overrun")
    begins = [at for at, what, _ in seen if what == "begin"]
    pids = [pid for _, what, pid in seen if what == "begin"]
    assert len(begins) == 3
    for begin, pid in zip(begins[1:], pids, strict=False):
        assert max(at for at, _, other in seen if other == pid) < begin
