"""The logs of both processes, as a collector of logs reads them."""

import json
import sys
from base64 import b64encode
from typing import Any

from tests.processes import Process, Stack, eventually

NAME = "tests.handlers.simple.work"
SECRET = "4111 1111 1111 1111"


def lines(process: Process) -> list[dict[str, Any]]:
    """The lines of a log that are JSON objects."""
    return [json.loads(line) for line in process.text.splitlines() if line.startswith("{")]


def test_a_workers_lines_carry_the_delivery_and_dead_letters_are_summed_up(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1", "-l", "DEBUG", WORKER_LOG_FORMAT="json")
    value = json.dumps({"card": SECRET, "log": True}).encode()
    (coordinates,) = stack.produce("orders", value)
    (line,) = eventually(lambda: [each for each in lines(worker) if each["message"] == "charging"], 20)
    assert line["delivery"] == f"{coordinates}:{NAME}"
    assert f"{line['topic']}-{line['partition']}-{line['offset']}" == coordinates
    assert (line["handler"], line["attempt"], line["amount"], line["level"]) == (NAME, 1, 7, "WARNING")

    stack.produce("orders", *({"dead": "no such card", "card": SECRET} for _ in range(60)))
    stack.dead("orders", 60)
    assert worker.terminate(20) == 0
    dead = [each for each in lines(worker) if "is dead" in each["message"]]
    assert len(dead) == 10
    assert all("no such card" in each["exc_info"] for each in dead)
    assert sum("50 more deliveries" in each["message"] for each in lines(worker)) == 1
    assert SECRET not in worker.text
    assert b64encode(value).decode()[:30] not in worker.text
    assert any(each["level"] == "DEBUG" for each in lines(worker))
    assert worker.count("Traceback") == 10


def test_a_bridges_lines_are_json_and_what_librdkafka_is_asked_to_say_is_shown(stack: Stack):
    stack.make_topics("orders")
    bridge = stack.bridge(BRIDGE_LOG_FORMAT="json", BRIDGE_LOG_LEVEL="warning", KAFKA_DEBUG="cgrp")
    eventually(lambda: any(each["logger"] == "bridge.librdkafka" for each in lines(bridge)), 20)
    assert bridge.terminate() == 0
    found = lines(bridge)
    assert len(found) == len([line for line in bridge.text.splitlines() if line and "BGQUEUE" not in line])
    # Below the level that was asked for there is nothing else.
    assert {each["level"] for each in found if each["logger"] != "bridge.librdkafka"} <= {"WARNING", "ERROR"}
    assert {"time", "level", "logger", "message", "pid"} <= found[0].keys()


def test_the_version_is_told(stack: Stack):
    done = stack.start("version", sys.executable, "-m", "bridge", "--version")
    assert done.ends(20) == 0
    assert "celery-kafka-bridge " in done.text
    assert "python 3." in done.text
