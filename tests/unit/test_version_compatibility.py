"""What an older version wrote is read, and what a newer one adds is left alone."""

import json
from typing import Any

import pytest

from bridge.formats.celery_header import from_header, to_header
from bridge.formats.delivery import Attempts
from bridge.inspection.status_report import list_problems
from bridge.jobs.group_facts import GroupFacts, HandlerFacts
from bridge.ledger import Fate

#: A message as the first version put it into the queue, whole: never changed here.
FIRST = """{"topic": "orders", "partition": 3, "cluster": "c", "group": "g", "topic_id": "t", "messages": [
  [7, 1700000000000, "aw==", "eyJpZCI6IDF9", [["trace", "MQ=="]]],
  [8, null, null, null, null, {"attempts": 2, "failures": 1, "first_failed_at": 1700000000001}],
  [9, null, null, "MQ==", null, {"attempts": 3, "failures": 3, "publish_tries": 2, "dead": {"reason": "exhausted",
    "error_class": "OSError", "error_message": "no", "error_traceback": "", "failed_at": 1700000000002}}]]}"""


def test_a_message_of_the_first_version_is_read():
    batch = from_header("charge", json.loads(FIRST))
    first, failing, dead = batch.deliveries
    assert (first.message.key, first.message.value, first.message.headers) == (b"k", b'{"id": 1}', (("trace", b"1"),))
    assert (failing.runs, failing.attempts, failing.error) == (2, Attempts(failed=1, postponed=1), "")
    assert dead.dead is not None
    assert (dead.dead.reason, dead.publish_tries) == ("exhausted", 2)


def test_what_a_newer_version_adds_to_a_message_is_left_alone():
    newer: dict[str, Any] = json.loads(FIRST)
    newer["breaker"] = "bank"
    newer["messages"][1][5]["policy"] = {"retries": 3}
    newer["messages"][1].append("more")
    assert from_header("charge", newer) == from_header("charge", json.loads(FIRST))


def test_what_this_version_writes_has_all_that_the_first_one_reads():
    written = to_header(from_header("charge", json.loads(FIRST)))
    for row in written["messages"]:
        if len(row) > 5:
            # How often it was put off, which the first version counts as what is no failure.
            del row[5]["postponed"]
    assert written == json.loads(FIRST)


def test_the_numbers_of_fates_are_those_that_lie_in_ledgers():
    assert {fate.name: fate.value for fate in Fate} == {
        "OPEN": 0,
        "HANDED": 1,
        "DONE": 2,
        "PARKED": 3,
        "DEAD": 4,
        "DISCARDED": 5,
        "GAP": 6,
    }


@pytest.mark.parametrize("newer", [{}, {"mood": "good", "halted": {"orders": "why"}}])
def test_status_understands_what_bridges_and_workers_of_other_versions_announce(newer: dict[str, Any]):
    bridge = {"assigned": ["orders-0"], "paused": {"orders-0": "queue q"}, "obstacles": [], "waiting": [], **newer}
    worker = {"queues": ["q"], "handlers": ["charge"], "versions": {}, "processes": 2, **newer}
    facts = GroupFacts(
        now=1e9,
        group="g",
        handlers=[HandlerFacts("charge", ("orders",), "q")],
        lag={"orders": 0},
        partitions={"orders": 1},
        bridges={"a": {**bridge, "topics": ["orders"]}},
        workers={"w": worker},
    )
    assert list_problems(facts) == []
