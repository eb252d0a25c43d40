"""Two applications on one Redis: each has what is its own."""

import json
import sys
from typing import Any

import pytest

from tests.message_locations import everywhere
from tests.processes import Stack, eventually

PLAIN = """
import os
from celery import Celery

app = Celery("plain", broker=os.environ["CELERY_BROKER_URL"])

@app.task(name="plain.note")
def note(number):
    print(f"plain {number}.", flush=True)
"""


def plain(stack: Stack, *arguments: str) -> Any:
    """A command of a Celery application that knows nothing of this project."""
    (stack.folder / "plain.py").write_text(PLAIN)
    command = (sys.executable, "-m", "celery", "-A", "plain", *arguments)
    return stack.start("plain", *command, cwd=stack.folder, CELERY_CONFIG_MODULE="", PYTHONPATH=str(stack.folder))


def send(stack: Stack, count: int, queue: str = "celery") -> None:
    """As that application's producers send."""
    program = f"import plain\nfor number in range({count}): plain.note.apply_async((number,), queue={queue!r})"
    (stack.folder / "plain.py").write_text(PLAIN)
    sent = stack.start("send", sys.executable, "-c", program, cwd=stack.folder, PYTHONPATH=str(stack.folder))
    assert sent.ends(20) == 0, sent.text


def test_beside_a_plain_celery_application_each_runs_its_own_and_all_of_it(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    theirs = plain(stack, "worker", "-c", "1", "-l", "INFO", "--without-mingle", "--without-gossip")
    ours = stack.worker()
    theirs.says(" ready.")
    send(stack, 20)
    coordinates = stack.produce("orders", *({"id": number} for number in range(20)))
    eventually(lambda: sorted(stack.done()) == sorted(coordinates), 30)
    eventually(lambda: all(f"plain {number}." in theirs.text for number in range(20)), 30)
    for process in (ours, theirs):
        assert "unregistered" not in process.text
        assert "does not know" not in process.text
    assert stack.dead_letters("orders") == []


@pytest.mark.slow
def test_what_carries_no_record_stays_in_its_queue_byte_for_byte_also_where_the_queue_is_shared(stack: Stack):
    stack.make_topics("orders")
    worker = stack.worker()
    send(stack, 5, stack.queue)
    with stack.redis() as client:
        client.lpush(stack.queue, b"no message", json.dumps({"body": "", "headers": {}, "properties": {}}))
        before = sorted(everywhere(client, stack.queue, waiting=stack.queue))
        assert len(before) == 7
        worker.says("message(s) returned to the queue: ")

        def all_of_them() -> bool:
            return sorted(everywhere(client, stack.queue, waiting=stack.queue)) == before

        for _ in range(3):
            eventually(all_of_them, 10)
        assert worker.terminate() == 0
        # Whoever stays may know nothing of this transport: all of them lie in the queue itself again.
        assert sorted(client.lrange(stack.queue, 0, -1)) == before
        assert "A Celery message that carries no record was given up" not in worker.text
