"""What is too large for AMQP's headers travels in the body, and arrives as it was sent."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lossless.worker.large_headers import MOST_BYTES, MOVED, estimate_size, move_large_headers, restore_large_headers

BODY = json.dumps([[1], {"a": 2}, {"callbacks": None}])


def arrived(headers: dict[str, Any], body: Any) -> Any:
    return SimpleNamespace(headers=headers, body=body)


@pytest.mark.parametrize("size", [10, MOST_BYTES, 1_000_000])
def test_a_message_arrives_with_the_headers_and_arguments_that_it_was_sent_with(size: int):
    headers = {"id": "1", "task": "charge", "kafka": {"rows": [["x" * size, 7, None]]}, "kept": "y" * 2_000}
    sent, body = move_large_headers(headers, BODY)
    assert sum(estimate_size(each) for each in sent.values()) <= MOST_BYTES
    assert (MOVED in sent) == (size >= MOST_BYTES)
    assert sent["task"] == "charge"
    message = arrived(sent, body)
    restore_large_headers(message)
    assert message.headers == headers
    assert json.loads(message.body) == json.loads(BODY)


def test_a_body_that_is_no_celery_tasks_takes_no_header():
    headers = {"task": "x" * (MOST_BYTES + 1)}
    for body in (b"\xff", "7", "[]"):
        assert move_large_headers(headers, body) == (headers, body)
