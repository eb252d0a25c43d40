"""Many deliveries in one Celery task, each with a fate of its own."""

import json
import re
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from bridge.formats.celery_header import HeaderContents
from tests.delivery_checks import all_settled, choose, command, json_of, twice
from tests.processes import Served, Stack, eventually
from tests.servers.process import free_port


def worker_log(stack: Stack) -> str:
    return (stack.folder / "worker-0.log").read_text()


def begun(stack: Stack) -> list[str]:
    return [run.coordinates for run in stack.runs("many") if run.outcome == "begun"]


def test_one_failing_message_never_repeats_its_neighbours_and_failures_go_together(calm: Stack):
    bad = {50, 51, 150}
    for n in range(400):
        value = {"fail": 2} if n in bad else {"dead": True} if n == 200 else n
        calm.producer.produce(calm.topic("many"), json.dumps(value).encode())
    assert calm.producer.flush(30) == 0
    all_settled(calm, "many", done=399, dead=1)
    assert twice(calm, "many") == {}
    assert len(begun(calm)) == 400 + 2 * len(bad)
    log = worker_log(calm)
    # Those that failed in one batch are retried in one message.
    again = re.findall(r"Task many\[calm.many-0-50\.\.\d+:many\] received", log)
    assert len(again) == 2


def test_a_message_carries_up_to_the_size_of_a_batch_and_its_label_says_which(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    for n in range(450):
        stack.producer.produce(stack.topic("many"), b"%d" % n)
    assert stack.producer.flush(30) == 0
    stack.bridge()
    topic = stack.topic("many")
    eventually(lambda: stack.waiting() >= 3, 20)
    with stack.redis() as client:
        found = [json.loads(raw)["headers"] for raw in reversed(client.lrange(stack.queue, 0, -1))]
    shown = {headers["argsrepr"]: headers["id"] for headers in found}
    assert shown[f"({topic}-0-0..199, 200 messages: {topic}-0-xx {topic}-0-1xx)"] == f"{topic}-0-0..199:many"
    carried = [contents.offsets for headers in found if (contents := HeaderContents.from_headers(headers)) is not None]
    assert sorted(offset for offsets in carried for offset in offsets) == list(range(450))
    assert max(map(len, carried)) == 200


def test_a_lone_message_does_not_wait_for_others(calm: Stack):
    (placed,) = calm.produce("many", 1)
    eventually(lambda: placed in calm.done("many"), 5)


@pytest.mark.slow
def test_a_process_that_dies_repeats_no_neighbour_and_the_message_that_kills_is_found(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    coordinates = stack.produce("many", *[{"sleep": 0.02}] * 30, {"kill": 9}, *range(30))
    stack.bridge()
    eventually(lambda: stack.waiting() >= 1, 20)
    stack.worker()
    (letter,) = stack.dead("many", 1, 60)
    assert letter.origin == coordinates[30]
    assert letter.ours["reason"] == "poison"
    all_settled(stack, "many", done=60, dead=1)
    begun = [run.coordinates for run in stack.runs("many") if run.outcome == "begun"]
    assert begun.count(coordinates[30]) == 3  # once among the others, then alone until it is held to be poison
    # Marks wait a few milliseconds for others: only what was done in the last of them before the process died.
    assert set(twice(stack, "many")) <= {coordinates[29]}
    assert not set(coordinates) - set(stack.done("many")) - {letter.origin}


def test_the_rest_of_a_batch_goes_back_when_its_time_is_over(calm: Stack):
    placed = calm.produce("slow", *({"sleep": 0.25} for _ in range(16)))
    eventually(lambda: set(placed) <= set(calm.done("slow")), 40)
    all_settled(calm, "slow", done=16)
    assert twice(calm, "slow") == {}
    back = [int(count) for count in re.findall(r"Task slow\[.* (\d+) put back[;,]", worker_log(calm))]
    assert len(back) >= 3
    assert back == sorted(back, reverse=True)


def carrier(stack: Stack, coordinates: str) -> tuple[str, str | None]:
    """The fate of a record for its one handler, and the Celery task that carried it last."""
    (delivery,) = json_of(stack, "find", coordinates)["deliveries"]
    return delivery["fate"], delivery["task"]


@pytest.mark.slow
def test_the_task_that_carried_a_record_is_told_wherever_it_is_and_after_its_end(stack: Stack, tmp_path: Path):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    go_on = tmp_path / "go on"
    fail, hold = {"fail": 1}, {"hold": str(go_on)}
    values: list[Any] = [*range(30), {"dead": True}, fail, fail, {"fail": 99}, hold, *range(5)]
    placed = stack.produce("many", *values)
    stack.bridge()
    topic = stack.topic("many")
    whole = f"{topic}-0-0..{len(values) - 1}:many"
    eventually(lambda: stack.waiting() == 1, 20)
    assert carrier(stack, placed[3]) == ("handed", whole)
    said = command(stack, "status")
    assert f"{len(values)} deliveries in 1 Celery message wait there" in said
    assert "many: batches of 200: given as batch=" in said
    stack.worker()
    eventually(lambda: len(stack.runs(coordinates=placed[34])) == 1, 20, "it runs")
    assert carrier(stack, placed[38]) == ("handed", whole)
    go_on.touch()
    all_settled(stack, "many", done=len(values) - 2, dead=2)
    eventually(lambda: carrier(stack, placed[3]) == ("done", whole), 10, "what is done was noted")
    assert carrier(stack, placed[38]) == ("done", whole)
    assert carrier(stack, placed[30]) == ("dead", whole)
    # Retried together, and the last of them alone: a task of one has its delivery's name.
    assert carrier(stack, placed[31]) == ("done", f"{topic}-0-31..33:many")
    assert carrier(stack, placed[33]) == ("dead", f"{placed[33]}:many")
    assert f"    task {whole}" in command(stack, "find", placed[3])


@pytest.mark.slow
def test_flower_finds_the_batch_of_a_record_by_its_coordinates_and_by_how_it_ended(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    port = free_port()
    program = (sys.executable, "-m", "celery", "-A", "tasks", "flower", f"--port={port}", "--address=127.0.0.1")
    flower: Served = stack.start("flower", *program, kind=Served, FLOWER_UNAUTHENTICATED_API="true")
    flower.port = port
    values: list[Any] = [{"fail": 99} if n in (101, 107) else {"dead": True} if n == 234 else n for n in range(250)]
    placed = stack.produce("many", *values)
    stack.bridge()
    stack.worker("-c", "1")
    eventually(lambda: flower.get("/api/workers?refresh=1")[0] == 200, 30, "Flower answers")
    eventually(lambda: len(json.loads(flower.get("/api/workers?refresh=1")[1] or "{}")) == 1, 30)
    placed += stack.produce("many", *values)
    topic = stack.topic("many")

    def tasks(search: str) -> dict[str, Any]:
        status, text = flower.get(f"/api/tasks?search={urllib.parse.quote(search)}")
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def failed_with(coordinates: str) -> list[dict[str, Any]]:
        return [task for task in tasks(f"result:{coordinates}").values() if task["state"] == "FAILURE"]

    all_settled(stack, "many", done=494, dead=6)
    (task,) = eventually(lambda: failed_with(placed[250 + 234]), 20, "the batch that one died in")
    assert "1 dead" in task["result"]
    assert "the first of the dead: permanent: tasks.errors.DeadLetter: as it says" in task["exception"]
    again = eventually(lambda: tasks(f"result:{placed[250 + 107]}"), 20, "the batch that two left, and theirs")
    assert any(re.search(r"\d+ done, .*2 again", str(task["result"])) for task in again.values())
    # By coordinates: those of a few are named in its arguments, those of many by their hundred.
    both = f"({topic}-0-351..357, 2 messages: {placed[351]} {placed[357]})"
    assert both in {task["args"] for task in tasks(placed[351]).values()}
    assert any("..499:many" in task_id for task_id in tasks(f"{topic}-0-4xx"))


@pytest.mark.slow
def test_what_several_batches_retry_at_the_same_time_travels_together(stack: Stack, tmp_path: Path):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    ends = tmp_path / "ends"
    batch = [{"fail": 1} if n % 20 == 0 else n for n in range(199)]
    stack.produce("many", *([*batch, {"hold": str(ends)}] * 4))
    stack.bridge()
    eventually(lambda: stack.waiting() >= 4, 20)
    stack.worker("-c", "4")
    eventually(lambda: len(begun(stack)) == 800, 60, "each batch is at its last message")
    ends.touch()
    all_settled(stack, "many", done=800)
    assert twice(stack, "many") == {}
    assert len(begun(stack)) == 800 + 40
    # The four batches had ten failures each, which are due a fraction of a second after their ends.
    tasks = re.findall(r"Task many\[\S+:many\] received", worker_log(stack))
    assert len(tasks) < 4 + 4
