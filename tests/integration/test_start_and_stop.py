"""How the two processes start, what they refuse, and how they end."""

import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT, Stack, eventually
from tests.servers.process import free_port

#: Processes that begin as users' do.
pytestmark = pytest.mark.usefixtures("from_nothing")

SECRET = "s3cr3t-pa55"


def _queued(stack: Stack, task_id: str) -> bool:
    return task_id in stack.queued_ids()


def test_a_bridge_ends_with_0_within_seconds_of_a_signal(stack: Stack):
    stack.make_topics("orders")
    for number in (signal.SIGTERM, signal.SIGINT):
        bridge = stack.bridge()
        (coordinates,) = stack.produce("orders", {"id": number})
        task_id = f"{coordinates}:tests.handlers.simple.work"
        eventually(partial(_queued, stack, task_id), 10)
        started = time.monotonic()
        bridge.signal(number)
        assert bridge.ends(10) == 0, bridge.text
        assert time.monotonic() - started < 5
        assert "stopped." in bridge.text
    assert stack.committed("orders") == 2
    assert stack.waiting() == 2


def test_a_bridge_tells_of_its_health_from_the_start_on(stack: Stack):
    stack.make_topics("orders")
    bridge = stack.bridge()
    assert bridge.get("/healthz") == (200, "ok\n")
    assert bridge.get("/readyz") == (200, "ok\n")
    assert bridge.get("/nothing")[0] == 404
    eventually(lambda: 'bridge_lag_records{partition="0"' in bridge.get("/metrics?by=partition")[1], 15)
    stack.produce("orders", 1, 2, 3)
    topic = stack.topic("orders")
    eventually(lambda: bridge.metric("bridge_committed_offset", topic=topic, partition="0") == 3, 15)
    assert bridge.metric("bridge_records_consumed_total", topic=topic, partition="0") == 3
    handler = "tests.handlers.simple.work"
    assert bridge.metric("bridge_deliveries_handed_off_total", topic=topic, handler=handler) == 3
    assert bridge.metric("bridge_handoff_seconds_count") >= 1
    assert bridge.metric("bridge_ready") == 1
    assert "partition=" not in bridge.get("/metrics")[1], "by topic unless asked"
    # It follows the commit, whenever Kafka was last asked for the end.
    assert bridge.metric("bridge_lag_records", topic=topic) == 0


def test_a_port_that_is_taken_costs_the_pages_and_not_the_work(stack: Stack):
    stack.make_topics("orders")
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        bridge = stack.bridge(wait=False, BRIDGE_HTTP_PORT=port)
        worker = stack.worker(WORKER_METRICS_PORT=port)
        bridge.says(f"port {port} cannot be opened")
        worker.says(f"port {port} cannot be opened")
        stack.produce("orders", {"id": 1})
        eventually(lambda: stack.done("work"), 20)
    assert bridge.terminate() == 0


@pytest.mark.parametrize("process", ["bridge", "worker"])
def test_wrong_settings_are_listed_at_once_and_end_the_start(stack: Stack, process: str):
    environ: dict[str, Any] = {
        "CELERY_CONFIG_MODULE": "tests.handlers.wrong",
        "BRIDGE_HTTP_PORT": "many",
        "WORKER_METRICS_PORT": str(free_port()),
        "KAFKA_ENABLE_AUTO_COMMIT": "true",
        "KAFKA_SASL_PASSWORD": SECRET,
        "CELERY_BROKER_URL": f"redis://:{SECRET}@127.0.0.1:1/0",
    }
    name = "bridge" if process == "bridge" else "worker"
    started = (
        stack.start(name, sys.executable, "-m", "bridge", **environ)
        if process == "bridge"
        else stack.start(name, sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", "1", **environ)
    )
    assert started.ends(20) == 1
    text = started.text
    subject = "The worker of the Celery app 'tasks' does not start, because its configuration is invalid:"
    assert ("Invalid configuration:" if process == "bridge" else subject) in text
    assert process == "bridge" or "start it again; `bridge check` tests them without a worker." in text
    for words in (
        "task_acks_late = True",
        "kafka_pause_above",
        "comit",
        "BRIDGE_HTTP_PORT",
        "KAFKA_ENABLE_AUTO_COMMIT",
    ):
        assert words in text
    assert SECRET not in text
    assert "Traceback" not in text


def test_a_users_own_tasks_file_that_hides_the_package_is_named(stack: Stack, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "tasks.py").write_text("from celery import Celery\napp = Celery('theirs')\n")
    root = str(ROOT)
    bridge = stack.start("bridge", sys.executable, "-m", "bridge", cwd=folder, PYTHONPATH=root)
    assert bridge.ends(20) == 2
    assert str(folder / "tasks.py") in bridge.text
    assert "rename it" in bridge.text
    (folder / "tasks.py").write_text("from tasks import handler\n")
    bridge = stack.start("bridge", sys.executable, "-m", "bridge", cwd=folder, PYTHONPATH=root)
    assert bridge.ends(20) == 2
    assert str(folder / "tasks.py") in bridge.text
    assert "rename" in bridge.text


@pytest.mark.parametrize(("process", "code"), [("bridge", 2), ("worker", 1)])
def test_modules_of_handlers_that_cannot_be_imported_are_named_beside_all_else(stack: Stack, process: str, code: int):
    environ: dict[str, Any] = {"HANDLERS": "nowhere.handlers,neither.here", "BRIDGE_GROUP": "bad name"}
    started = getattr(stack, process)(wait=False, **environ)
    assert started.ends(20) == code
    for words in ("No module named 'nowhere'", "No module named 'neither'", "BRIDGE_GROUP may hold"):
        assert words in started.text
    assert "Traceback" not in started.text


@pytest.mark.parametrize("process", ["bridge", "worker"])
def test_neither_process_starts_without_a_handler_and_the_module_that_holds_none_is_named(
    stack: Stack, tmp_path: Path, process: str
):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "records.py").touch()
    environ: dict[str, Any] = {"HANDLERS": "shop", "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    started = getattr(stack, process)(wait=False, **environ)
    assert started.ends(20) == 1
    assert f"HANDLERS names 'shop' ({tmp_path / 'shop' / '__init__.py'}" in started.text
    assert "the package holds shop.records: name those" in started.text


def test_no_password_is_in_any_output(stack: Stack):
    stack.make_topics("orders")
    urls = (f"redis://:{SECRET}@127.0.0.1:1/0", f"rediss://me:{SECRET}@127.0.0.1:1/0?ssl_cert_reqs=none")
    bridges = [
        stack.bridge(
            wait=False,
            CELERY_BROKER_URL=url,
            LEDGER_URL=url,
            KAFKA_SASL_PASSWORD=SECRET,
            KAFKA_SASL_USERNAME="me",
            KAFKA_SASL_MECHANISM="PLAIN",
            KAFKA_SSL_KEY_PASSWORD=SECRET,
        )
        for url in urls
    ]
    stack.produce("orders", *range(10))
    for bridge in bridges:
        bridge.says("broker redis")
    eventually(lambda: any("cannot be handed off" in bridge.text for bridge in bridges), 30)
    for bridge in bridges:
        pages = [bridge.get(page)[1] for page in ("/healthz", "/readyz", "/metrics")]
        assert bridge.terminate() == 0
        assert SECRET not in bridge.text + "".join(pages)


def test_a_topic_that_does_not_exist_yet_is_said_once_and_consumed_when_it_comes(stack: Stack):
    bridge = stack.bridge(wait=False, TEST_SECOND_TOPIC="1", KAFKA_TOPIC_METADATA_REFRESH_INTERVAL_MS="1000")
    bridge.says(f"topic '{stack.topic('orders')}' does not exist yet")
    eventually(lambda: "no topic to consume exists yet" in bridge.get("/readyz")[1], 10)
    stack.make_topics("orders")
    stack.produce("orders", *range(5))
    eventually(lambda: stack.waiting() == 5, 30, "the topic that came is consumed")
    eventually(bridge.ready, 10)
    stack.make_topics("later")
    stack.produce("later", *range(5))
    eventually(lambda: stack.waiting() == 10, 30, "the second topic that came is consumed")
    assert bridge.count(f"topic '{stack.topic('orders')}' does not exist yet") == 1
    assert bridge.count(f"topic '{stack.topic('later')}' does not exist yet") == 1
    eventually(lambda: stack.has_topic("later.dlq"), 15, "its dead-letter topic is made")
    assert "Traceback" not in bridge.text


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_of_two_bridges_in_one_place_one_ends_with_one_line_and_a_code_that_asks_for_another_start(
    stack: Stack, protocol: str
):
    stack.environ |= {"KAFKA_GROUP_INSTANCE_ID": "the only one", "KAFKA_GROUP_PROTOCOL": protocol}
    stack.make_topics("orders")
    first = stack.bridge()
    second = stack.bridge(wait=False)
    fenced, stays = (first, second) if protocol == "classic" else (second, first)
    assert fenced.ends(30) == 75
    assert "Kafka's client cannot go on" in fenced.text
    assert "Start the bridge again." in fenced.text
    assert "Traceback" not in fenced.text
    eventually(stays.ready, 30)
