"""A real prefork worker: killed, without its dead-letter topic, and seen by Flower."""

import json
import os
import re
import signal
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import choose
from tests.processes import ROOT, Served, Stack, eventually
from tests.servers.process import free_port

NAME = "tests.handlers.simple.work"


def test_a_taken_message_comes_back_when_its_worker_is_killed(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    settings: dict[str, Any] = {"CELERY_CONFIG_MODULE": "tests.handlers.soon_lost"}
    worker = stack.worker(**settings)
    (coordinates,) = stack.produce("orders", {"sleep": 2})
    eventually(lambda: stack.runs(coordinates=coordinates), 20)
    worker.kill()
    stack.worker(**settings)
    eventually(lambda: stack.done() == [coordinates], 30, "it ran again, on another worker")
    assert len({run.pid for run in stack.runs(coordinates=coordinates)}) == 2
    eventually(lambda: stack.held_ids() == [], 10)


def test_a_worker_that_is_told_to_stop_finishes_what_it_runs(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker()
    (coordinates,) = stack.produce("orders", {"sleep": 2})
    eventually(lambda: stack.runs(coordinates=coordinates), 20)
    assert worker.terminate(20) == 0
    assert stack.done() == [coordinates]
    assert stack.held_ids() == []


def test_a_dead_letter_waits_until_its_topic_is_there_and_the_handler_is_not_run_again(stack: Stack):
    stack.make_topics("orders")
    settings: dict[str, Any] = {
        "CELERY_CONFIG_MODULE": "tests.handlers.no_topics",
        "KAFKA_MESSAGE_TIMEOUT_MS": "1000",
    }
    stack.bridge(**settings)
    worker = stack.worker(**settings)
    coordinates = stack.produce("orders", {"dead": "one"}, {"fail": True}, b"not json")
    eventually(lambda: worker.count("but Kafka did not take its dead letter") >= 3, 40)
    runs = len(stack.runs())
    assert runs == 1 + 3
    stack.make_topics("orders.dlq")
    letters = stack.dead("orders", 3, 40)
    assert sorted(letter.origin for letter in letters) == sorted(coordinates)
    found = {letter.origin: (letter.ours["reason"], letter.ours["attempts"]) for letter in letters}
    assert found == {
        coordinates[0]: ("permanent", "1"),
        coordinates[1]: ("exhausted", "3"),
        coordinates[2]: ("undecodable", "1"),
    }
    eventually(lambda: stack.held_ids() == [] and not stack.waiting(), 10)
    assert len(stack.runs()) == runs
    assert len(stack.dead_letters("orders")) == 3


def test_a_plain_call_of_a_handler_through_celery_runs_its_function(stack: Stack):
    stack.make_topics("orders")
    stack.worker(HANDLERS="tests.handlers.plain")
    program = "from tests.handlers.plain import greet; greet.delay('Ada')"
    sent = stack.start("sent", sys.executable, "-c", program, HANDLERS="tests.handlers.plain")
    assert sent.ends(20) == 0, sent.text
    eventually(lambda: "Hello Ada" in stack.runs_file.read_text(), 20)


@pytest.mark.slow
def test_flower_shows_the_deliveries_finds_them_and_says_where_the_console_has_them(stack: Stack, tmp_path: Path):
    stack.make_topics("orders")
    port, conf = free_port(), tmp_path / "flowerconfig.py"
    (written,) = re.findall(
        r"```python\n(# flowerconfig.py.*?)```", (ROOT / "docs/how-to/console.md").read_text(), re.DOTALL
    )
    conf.write_text(written)
    flower_at = (f"--port={port}", "--address=127.0.0.1", f"--conf={conf}")
    command = (sys.executable, "-m", "celery", "-A", "tasks", "flower", *flower_at)
    flower: Served = stack.start("flower", *command, kind=Served, FLOWER_UNAUTHENTICATED_API="true")
    flower.port = port
    worker = stack.worker()
    eventually(lambda: flower.get("/api/workers?refresh=1")[0] == 200, 30, "Flower answers")
    eventually(lambda: len(json.loads(flower.get("/api/workers?refresh=1")[1] or "{}")) == 1, 30)
    stack.bridge()
    done, failing, dead = stack.produce("orders", {"id": 1}, {"fail": True}, {"dead": "no such card"})

    def states(search: str = "") -> dict[str, Any]:
        status, text = flower.get(f"/api/tasks?search={urllib.parse.quote(search)}")
        assert status == 200, text
        return {task_id: task["state"] for task_id, task in json.loads(text).items()}

    expected = {f"{done}:{NAME}": "SUCCESS", f"{failing}:{NAME}": "FAILURE", f"{dead}:{NAME}": "FAILURE"}
    eventually(lambda: states() == expected, 30, "Flower has the states")
    assert states(failing) == {f"{failing}:{NAME}": "FAILURE"}
    info = json.loads(flower.get(f"/api/task/info/{urllib.parse.quote(f'{failing}:{NAME}')}")[1])
    assert info["name"] == NAME
    assert info["args"] == f"({failing})"
    assert info["retries"] == 2
    assert "exhausted: ConnectionError: always" in info["exception"]
    task = urllib.parse.quote(f"{failing}:{NAME}", safe="")
    assert f"https://console.example.com/find?q={task}" in flower.get(f"/task/{task}")[1]
    worker.terminate(20)


@pytest.mark.slow
def test_flower_opened_later_shows_what_is_under_way_and_what_comes(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    stack.worker()
    before = stack.produce("orders", *range(5))
    eventually(lambda: sorted(stack.done()) == sorted(before), 30, "nobody has seen these")
    (running,) = stack.produce("orders", {"sleep": 15})
    eventually(lambda: stack.runs(coordinates=running), 20, "it runs")
    port = free_port()
    command = (sys.executable, "-m", "celery", "-A", "tasks", "flower", f"--port={port}", "--address=127.0.0.1")
    flower: Served = stack.start("flower", *command, kind=Served, FLOWER_UNAUTHENTICATED_API="true")
    flower.port = port

    def shown(coordinates: str) -> tuple[str, str]:
        tasks = json.loads(flower.get("/api/tasks")[1] or "{}")
        task = tasks.get(f"{coordinates}:{NAME}", {})
        return task.get("name", ""), task.get("state", "")

    eventually(lambda: shown(running) == (NAME, "STARTED"), 12, "Flower shows what runs")
    (after,) = stack.produce("orders", {"id": 1})
    eventually(lambda: shown(after) == (NAME, "SUCCESS"), 20, "and what comes")
    assert shown(before[0]) == ("", "")


@pytest.mark.slow
def test_an_idle_worker_and_an_idle_bridge_cost_next_to_nothing(stack: Stack):
    stack.make_topics("orders")
    bridge = stack.bridge()
    started = _cpu(bridge.pid)
    time.sleep(2)
    assert _cpu(bridge.pid) - started < 0.4


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_a_child_that_is_killed_while_others_work_costs_no_other_delivery(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    stack.worker()
    coordinates = stack.produce("orders", {"sleep": 1.5}, *({"sleep": 0.05} for _ in range(20)))
    (first,) = eventually(lambda: stack.runs(coordinates=coordinates[0]), 20)
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: sorted(stack.done()) == sorted(coordinates), 30)


@pytest.mark.slow
def test_a_handler_that_no_worker_knows_for_long_enough_becomes_a_dead_letter(stack: Stack):
    choose(stack, {}, kafka_unknown_for=1)
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.make_topics("orders")
    stack.bridge()
    stack.worker(HANDLERS="tests.handlers.plain")
    (coordinates,) = stack.produce("orders", {"id": 1}, key=b"k", headers=[("a", b"1")])
    (letter,) = stack.dead("orders", 1, 15)
    assert letter.origin == coordinates
    assert letter.ours["reason"] == "unknown_handler"
    assert letter.ours["handler"] == NAME
    assert (letter.record.key(), letter.record.value(), letter.theirs) == (b"k", b'{"id": 1}', [("a", b"1")])


@pytest.mark.slow
def test_a_delivery_waits_for_a_worker_that_knows_its_handler(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    stranger = stack.worker(HANDLERS="tests.handlers.plain")
    coordinates = stack.produce("orders", *({"id": number} for number in range(5)))
    stranger.says("which this worker does not know, wait for one that does")
    assert stack.done() == []
    stack.worker()
    # Whoever is free takes it: the one that knows it is not always the first.
    stranger.terminate()
    eventually(lambda: sorted(stack.done()) == sorted(coordinates), 30, "the worker that knows it has them all")
    assert stack.dead_letters("orders") == []


@pytest.mark.slow
def test_what_is_under_way_under_an_old_name_is_done_once_by_the_renamed_handler(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.make_topics("orders")
    before = stack.bridge()
    coordinates = stack.produce("orders", *range(3))
    eventually(lambda: stack.waiting() == 3, 20)
    before.kill()
    # The new bridge knows nothing of the old name's fates, and hands all three out again under the new one.
    stack.environ["HANDLERS"] = "tests.handlers.renamed"
    stack.bridge()
    eventually(lambda: stack.waiting() == 6, 20)
    worker = stack.worker("-c", "1")
    eventually(lambda: stack.committed("orders") == 3, 30, "both names' deliveries are settled")
    eventually(lambda: not stack.waiting() and not stack.held_ids(), 10)
    assert sorted(stack.done()) == sorted(coordinates)
    assert worker.count("is settled already: not run again") == 3
    assert stack.dead_letters("orders") == []
