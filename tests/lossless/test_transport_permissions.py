"""A Redis user with an ACL: what the documentation lists is enough, and what is refused is named."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from kombu import Connection

from lossless import transport
from tests.lossless.harness import QUICK, TRANSPORT_APP, Broker, Worker, entry, wait_until
from tests.project_process import ROOT

Ran = Callable[[], list[int]]


def documented() -> list[str]:
    """The rules of the ACL in docs/concepts/lossless.md, for the queue `celery`."""
    found = re.search(r"```acl\n(.*?)```", (ROOT / "docs/concepts/lossless.md").read_text(), re.S)
    assert found
    return found[1].replace("~shop*", "~celery*").split()


@pytest.fixture
def allow(broker: Broker) -> Iterator[Callable[..., str]]:
    """Make the user `app` with rules; returns its URL."""

    def allow(*rules: str) -> str:
        broker.client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
        broker.client.execute_command("ACL", "LOG", "RESET")
        return f"redis://app:secret@127.0.0.1:{broker.port}/0"

    yield allow
    broker.client.execute_command("ACL", "DELUSER", "app")


def worker_as(start_worker: Callable[..., Worker], broker: Broker, url: str) -> Worker:
    """A worker that comes as this user; its tasks note what they do as another."""
    return start_worker("-E", alone=False, broker_read_url=url, broker_write_url=url)


def test_what_the_documentation_lists_is_enough(
    broker: Broker, allow: Callable[..., str], start_worker: Callable[..., Worker], ran: Ran
) -> None:
    url = allow(*documented())
    worker_as(start_worker, broker, url)
    with Celery(broker=url) as app:
        app.send_task(f"{TRANSPORT_APP}.mark", (1,), priority=9)
        app.send_task(f"{TRANSPORT_APP}.mark", (2,), countdown=0.5)
        wait_until(lambda: ran() == [1, 2])
        assert app.control.inspect(timeout=2, limit=1).ping()
        wait_until(lambda: not broker.taken())
    refused = broker.client.execute_command("ACL", "LOG")
    assert [entry[b"object"] for entry in map(as_dict, refused) if entry[b"object"] != b"client|setinfo"] == []


def as_dict(entry: Any) -> dict[bytes, Any]:
    return entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))


def test_what_is_refused_is_named_and_is_no_outage(
    broker: Broker, allow: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    if not broker.client.eval("return redis.acl_check_cmd and 1 or 0", 0):
        pytest.skip("before Redis 7 no server says what it refuses")
    url = allow(
        *documented(),
        "-hset",
        "-smembers",
        "resetkeys",
        "~_taken*",
        "~_waiting*",
        "~_idle*",
        "~_gates*",
        "~_aside*",
        "~_lookout",
        "~_kombu*",
        "~unacked*",
    )
    with Connection(url, transport_options=QUICK) as connection:
        channel: Any = connection.default_channel
        channel.basic_consume("secret", False, print, "tag")
        wait_until(lambda: "failed at moving what is due" in caplog.text)
    # Another test of this process may have had the bridge's logs set up, which show control characters escaped.
    text = caplog.text.replace("\x06", r"\x06").replace("\x16", r"\x16")
    assert r"this Redis user is refused: commands HSET, SMEMBERS; keys _undecodable, secret, secret\x06\x163" in text
    assert "not available" not in text


def test_an_acl_of_before_gates_came_has_all_of_them_open(
    broker: Broker, allow: Callable[..., str], start_worker: Callable[..., Worker], ran: Ran
) -> None:
    url = allow(*(rule for rule in documented() if rule not in ("~_gates*", "~_aside*", "+lmove", "+lindex")))
    broker.client.hset("_gates", "a", 0)
    with Celery(broker=url) as app:
        app.send_task(f"{TRANSPORT_APP}.mark", (1,), gates="a")
    worker = worker_as(start_worker, broker, url)
    wait_until(lambda: ran() == [1])
    if broker.client.eval("return redis.acl_check_cmd and 1 or 0", 0):
        worker.says("refused: commands LINDEX, LMOVE; keys _aside, _aside.list, _gates")


def test_an_answer_that_nobody_has_read_yet_is_not_owed(broker: Broker) -> None:
    """Under `solo` a task keeps the event loop for longer than any timeout."""
    with Connection(broker.url, transport_options={**QUICK, "socket_timeout": 0.2}) as connection:
        channel: Any = connection.default_channel
        channel.basic_consume("q", False, print, "tag")
        channel.taker.turn()
        assert channel.taker._line.busy
        wait_until(lambda: channel.taker._line.connection.can_read(timeout=0))
        time.sleep(0.3)
        channel.taker._check_overdue()


def test_a_wait_without_acknowledgement_needs_no_number_of_its_connection(
    broker: Broker, allow: Callable[..., str]
) -> None:
    url = allow(*documented(), "-client|id", "-client|unblock")
    got: list[Any] = []
    with Connection(url, transport_options=QUICK) as connection:
        channel: Any = connection.default_channel
        channel.basic_consume("celery", True, got.append, "tag")
        channel.taker.turn()
        broker.client.lpush("celery", json.dumps(entry("a", "1")))
        connection.drain_events(timeout=5)
    assert len(got) == 1


def test_a_right_that_is_missing_is_named_without_a_worker(broker: Broker, allow: Callable[..., str]) -> None:
    if not broker.client.eval("return redis.acl_check_cmd and 1 or 0", 0):
        pytest.skip("before Redis 7 no server says what it refuses")
    with Connection(allow(*documented())) as connection:
        assert transport.find_refused_queues(connection, ["celery"]) is None
    with Connection(allow(*documented(), "-lmove")) as connection:
        assert "refused: commands LMOVE." in str(transport.find_refused_queues(connection, ["celery"]))
