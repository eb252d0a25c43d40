"""Messages that no task can be run with, revoked and expired ones: buried with their reason."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.lossless.harness import ENDS_APP, Broker, entry, sender, wait_until, worker
from tests.servers.redis import RedisServer

TRANSPORTS = ["lossless", pytest.param("kombu", marks=pytest.mark.slow)]
FAR = "9999-12-31T23:59:59+00:00"

# name: (entry, reason, part of the error)
HOSTILE: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown_task": (entry("nobody.knows", "unknown_task"), "unknown_task", "nobody.knows"),
    "no_task_header": (entry(None, "no_task_header"), "invalid", "task"),
    "task_a_list": (entry("done", "task_a_list", task=["done"]), "invalid", "unhashable"),
    "no_id": (entry("done", None), "invalid", "id is None"),
    "id_a_number": (entry("done", "x", id=5), "invalid", "id is 5"),
    "body_not_json": (entry("done", "body_not_json", b"not json"), "undecodable", ""),
    "body_a_number": (entry("done", "body_a_number", 5), "invalid", ""),
    "body_of_two": (entry("done", "body_of_two", [[], {}]), "invalid", "body"),
    "kwargs_a_list": (entry("done", "kwargs_a_list", [[], [1], {}]), "invalid", "mapping"),
    "args_a_text": (entry("done", "args_a_text", ["ab", {}, {}]), "invalid", "not a list"),
    "embed_a_list": (entry("done", "embed_a_list", [[], {}, [1]]), "invalid", "mapping"),
    "pickle": (
        entry("done", "pickle") | {"content-type": "application/x-python-serialize"},
        "invalid",
        "pickle",
    ),
    "compressed_badly": (entry("done", "compressed_badly", compression="rot13"), "undecodable", "rot13"),
    "bad_eta": (entry("done", "bad_eta", eta="tomorrow"), "invalid", "tomorrow"),
    "eta_a_number": (entry("done", "eta_a_number", eta=5), "invalid", "eta"),
    "eta_far": (entry("done", "eta_far", eta=FAR), "invalid", "366 days"),
    "eta_long_ago": (entry("done", "eta_long_ago", eta="0001-01-01T00:00:00+00:00"), "invalid", "0001"),
    "bad_expires": (entry("done", "bad_expires", expires="never"), "invalid", "never"),
    "timelimit_a_number": (entry("done", "timelimit_a_number", timelimit=5), "invalid", "timelimit"),
    "timelimit_a_text": (entry("done", "timelimit_a_text", timelimit=["a", "b"]), "invalid", "timelimit"),
    "retries_a_text": (entry("done", "retries_a_text", retries="x"), "invalid", "retries"),
    "shadow_a_list": (entry("done", "shadow_a_list", shadow=["x"]), "invalid", "shadow"),
    "stamps_a_number": (entry("done", "stamps_a_number", stamped_headers=5), "invalid", "stamped_headers"),
    "expired": (entry("done", "expired", expires="2020-01-01T00:00:00+00:00"), "expired", "expired"),
    "restored_often": (entry("done", "restored_often", restored=4, lost=2), "poison", "4 workers"),
}
GOOD = {
    "plain": entry("done", "plain"),
    "counters_of_another_kind": entry("done", "counters_of_another_kind", lost="many", restored={"a": 1}, requeued=-1),
    "custom_header": entry("done", "custom_header", kafka={"topic": "orders"}),
    "restored_twice": entry("done", "restored_twice", restored=2),
}


#: Waits in Redis on the one transport, where it costs nothing; on the other a worker would hold it for ever.
HELD = {"eta_far"}


@pytest.fixture(scope="module", params=TRANSPORTS)
def read(
    request: pytest.FixtureRequest, mortal_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Broker]]:
    """A database whose messages, all of the above, one worker has read."""
    broker = Broker(mortal_redis, mortal_redis.fresh_database())
    waiting = len(HELD) if request.param == "lossless" else 0
    for sent in [*(sent for sent, _, _ in HOSTILE.values()), *GOOD.values()]:
        broker.push(sent)
    folder = tmp_path_factory.mktemp("messages")
    with worker(broker.url, folder, "-c", "2", app=ENDS_APP, transport=request.param) as running:
        buried = len(HOSTILE) - waiting
        wait_until(lambda: len(broker.noted("buried")) >= buried and len(broker.noted("done")) >= len(GOOD), 30)
        wait_until(lambda: broker.left() == waiting, 10, "nothing is held")
        assert running.count(" ready.") == 1
        assert running.terminate() == 0
    yield request.param, broker
    broker.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_message_that_no_task_can_run_with_is_buried(read: tuple[str, Broker], name: str):
    transport, broker = read
    sent, reason, error = HOSTILE[name]
    assert name not in broker.noted("done")
    burials = [burial for burial in broker.noted("buried") if burial["headers"] == sent["headers"]]
    if transport == "lossless" and name in HELD:
        assert burials == []
        assert [message["headers"]["id"] for message in broker.queued()] == [name]
        return
    (burial,) = burials
    assert base64.b64decode(burial["body"]) == base64.b64decode(sent["body"])
    assert burial["reason"] == reason
    assert error in burial["error_message"]


def test_a_message_beside_them_is_handled(read: tuple[str, Broker]):
    assert sorted(read[1].noted("done")) == sorted(GOOD)


def test_a_burial_says_all_that_the_message_said(read: tuple[str, Broker]):
    burial = next(burial for burial in read[1].noted("buried") if burial["id"] == "expired")
    assert burial["headers"]["expires"] == "2020-01-01T00:00:00+00:00"
    assert base64.b64decode(burial["body"]) == b"[[], {}, {}]"
    assert (burial["content_type"], burial["content_encoding"]) == ("application/json", "utf-8")
    assert abs(burial["failed_at"] / 1000 - datetime.now(UTC).timestamp()) < 60


@pytest.mark.parametrize("by", ["SIGTERM", pytest.param("SIGKILL", marks=pytest.mark.slow)])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_revoked_task_is_buried_waiting_or_running(broker: Broker, tmp_path: Path, transport: str, by: str):
    started = worker(broker.url, tmp_path, app=ENDS_APP, transport=transport, worker_prefetch_multiplier=4)
    with started as running, sender(broker) as app:
        app.send_task("sleeps", (60,), task_id="running")
        wait_until(lambda: broker.noted("runs"), what="the first runs")
        app.send_task("done", task_id="waiting")
        app.send_task("done", task_id="due", eta=datetime.now(UTC) + timedelta(hours=1))
        wait_until(lambda: broker.left() == 3 and broker.taken() >= 2, what="all have come")
        app.control.revoke(["waiting"])
        app.control.revoke(["running"], terminate=True, signal=by)
        burials = wait_until(lambda: len(broker.noted("buried")) == 2 and broker.noted("buried"), what="both buried")
        reasons = {burial["id"]: burial["reason"] for burial in burials}
        assert reasons == dict.fromkeys(("running", "waiting"), "revoked")
        assert broker.noted("done") == []
        wait_until(lambda: broker.left() == 1, what="only what is not due is left")
        assert running.terminate() == 0
        wait_until(lambda: len(broker.queued()) == 1, what="what was not due is back in the queue")


@pytest.mark.parametrize("raw", [b"not json", b"7", b'{"body": "e30=", "headers": {}}'])
def test_an_entry_that_is_no_message_is_buried_as_it_was(broker: Broker, tmp_path: Path, raw: bytes):
    broker.push(raw)
    broker.push(entry("done", "beside"))
    with worker(broker.url, tmp_path, app=ENDS_APP):
        (burial,) = wait_until(lambda: broker.noted("buried"))
        assert (burial["reason"], burial["queue"], burial["task"]) == ("undecodable", "celery", None)
        assert base64.b64decode(burial["raw"]) == raw
        wait_until(lambda: broker.noted("done") == ["beside"] and not broker.left())
        assert not broker.client.exists("_undecodable")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_task_that_is_not_known_here_waits_for_another_worker_before_it_is_buried(
    broker: Broker, tmp_path: Path, transport: str
):
    broker.push(entry("nobody.knows", "unknown"))
    sent = datetime.now(UTC).timestamp()
    with worker(broker.url, tmp_path, app=ENDS_APP, transport=transport, unknown_for=2) as running:
        running.says("wait for one that does")
        assert broker.noted("buried") == []
        (burial,) = wait_until(lambda: broker.noted("buried"), 10)
        assert burial["reason"] == "unknown_task"
        assert burial["failed_at"] / 1000 - sent >= 2
        assert running.count("wait for one that does") == 1
        wait_until(lambda: not broker.left(), what="nothing is held")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_the_burial_task_can_make_nothing_of_stays_in_its_queue(broker: Broker, tmp_path: Path, transport: str):
    strange = [entry("nobody.knows", "theirs"), entry(None, "no_task"), entry("done", "body", b"not json")]
    for sent in strange:
        broker.push(sent)
    broker.push(entry("done", "beside"))
    options: dict[str, Any] = {"transport": transport, "burial_wants": "tests.lossless.ends_app:wants"}
    with worker(broker.url, tmp_path, "-c", "2", app=ENDS_APP, **options) as running:
        wait_until(lambda: broker.noted("done") == ["beside"])
        wait_until(lambda: running.count("message(s) returned to the queue") == 3, what="each is seen")
        wait_until(lambda: broker.left() == 3)
        running.terminate()
    left = wait_until(lambda: len(broker.queued()) == 3 and broker.queued(), what="all are in their queue")
    assert sorted(message["body"] for message in left) == sorted(sent["body"] for sent in strange)
    assert broker.noted("buried") == []
