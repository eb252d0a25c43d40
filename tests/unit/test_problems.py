"""What needs a person: each kind of problem from the facts that show it, and silence where nothing does."""

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from bridge.dispatch.broker_search import SetAside
from bridge.dispatch.carrier_message import WaitingFailures
from bridge.formats import group_decision
from bridge.formats.group_decision import GroupDecision
from bridge.formats.halt_scope import HaltScope
from bridge.formats.pause_reasons import PauseReason
from bridge.inspection.consumption_problems import find_handler_halts
from bridge.inspection.status_report import list_problems
from bridge.jobs.deleted_topics import DeletedTopic
from bridge.jobs.group_facts import (
    DeadLetterFacts,
    DependencyDown,
    GroupFacts,
    HandlerFacts,
    HandlerHalt,
    RedisMemory,
    TopicFacts,
    format_span,
)
from bridge.kafka.managed_topic import ReplicaState
from bridge.ledger import RETRY_RECORD, KafkaLogChange
from tests.source_tree import parse_source

NOW = 1_769_860_805.0
HALT = GroupDecision(
    "halt:orders",
    group_decision.DecisionEntry("1", {"since": NOW - 7200, "record": "orders-0-7"}, "ann", NOW - 60, "bank shut."),
)
CHARGE = HandlerFacts("orders.handlers.charge", ("orders",), "orders")
AUDIT = HandlerFacts("orders.handlers.audit", ("orders",), "orders")


def worker(**more: Any) -> dict[str, Any]:
    return {
        "queues": ["orders"],
        "handlers": [CHARGE.name],
        "versions": {"celery-kafka-bridge": "1.2.3"},
        **more,
    }


def bridge(**more: Any) -> dict[str, Any]:
    return {
        "started": NOW - 3600,
        "topics": ["orders"],
        "assigned": ["orders-0", "orders-1"],
        "paused": {},
        "obstacles": [],
        **more,
    }


#: A key that most deliveries of a partition have.
HOT = {"topic": "orders", "partition": 0, "handler": "h", "offset": 90, "count": 812, "seconds": 120.0}
#: Dead deliveries that hold those behind them.
DEAD_HOLD = {
    "topic": "orders",
    "partition": 0,
    "handler": "h",
    "offset": 90,
    "dead": 2,
    "behind": 9,
    "since": NOW - 120,
}
#: A transaction that holds back a partition.
HELD_BACK = {"topic": "orders", "partition": 0, "offset": 90, "count": 812, "since": NOW - 120}
#: A partition of which less is read than is written.
BEHIND = {"topic": "orders", "partition": 0, "count": 12_345, "since": NOW - 420}


def tier(first_due: Mapping[int, float] = MappingProxyType({}), **more: Any) -> TopicFacts:
    dues = {partition: {CHARGE.name: due} for partition, due in first_due.items()}
    return TopicFacts("orders.retry.5m", "retry", "orders", 300, **{"use": "needed", "dues": dues, **more})


RETRIED = {"bridges": {"a:1": bridge(assigned=["orders-0", "orders-1", "orders.retry.5m-0", "orders.retry.5m-1"])}}
RETRIED_PAUSED = {
    "bridges": {
        "a:1": bridge(
            assigned=["orders-0", "orders-1", "orders.retry.5m-0", "orders.retry.5m-1"],
            paused={"orders.retry.5m-0": "queue orders"},
        )
    }
}

WELL = GroupFacts(
    now=NOW,
    group="shop",
    handlers=[CHARGE],
    lag={"orders": 12},
    partitions={"orders": 2},
    bridges={"a:1": bridge()},
    workers={"w:1": worker()},
    seen={"queue orders": NOW - 1, f"handler {CHARGE.name}": NOW - 420, "group shop": NOW - 60},
    queues={"orders": 1234},
    oldest={("orders", CHARGE.name): 30.0},
    memory=[RedisMemory("r:6379", 10, 100)],
)


def test_where_all_is_well_nothing_needs_a_person():
    assert list_problems(WELL) == []


def test_what_is_not_known_is_no_problem():
    unknown = replace(WELL, lag=None, partitions=None, bridges=None, workers=None, queues=None, memory=())
    assert list_problems(unknown) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"silent": ["Kafka does not answer."]}, ["Kafka does not answer."]),
        ({"workers": {}}, ["No worker consumes queue 'orders'", "2026-01-31 12:00:04 UTC", "1,234 messages"]),
        (
            {"workers": {}, "queues": {"orders": 0}, "retries": {"orders": 3000}},
            ["3,000 messages wait there, 3,000 of them for their retry, none of them is lost"],
        ),
        (
            {"workers": {}, "queues": {"orders": 70}, "deliveries": {"orders": 2002}},
            ["2,002 deliveries in 70 Celery messages wait there, none of them is lost"],
        ),
        (
            {"workers": {}, "queues": {"orders": 3}, "deliveries": {"orders": 0}},
            ["3 messages wait there, none of them is lost"],
        ),
        ({"workers": {"w:1": worker(queues=["other"])}}, ["No worker consumes queue 'orders'"]),
        (
            {"workers": {"w:1": worker(handlers=[])}},
            ["No worker knows handler orders.handlers.charge", "11:53:05", "7 min", "w:1 (1.2.3)", "Deploy"],
        ),
        (
            {"workers": {"w:1": worker(), "w:2": worker(handlers=[])}},
            ["1 of 2 workers", "does not know handler orders.handlers.charge", "w:2"],
        ),
        (
            {"workers": {"w:1": worker(started=NOW - 900), "w:2": worker(handlers=[], started=NOW - 420)}},
            ["does not know handler orders.handlers.charge, since 2026-01-31 11:53:05 UTC (7 min): w:2"],
        ),
        ({"bridges": {}}, ["No bridge of group 'shop' runs", "(1 min)", "12 records"]),
        ({"bridges": {"a:1": bridge(topics=[])}}, ["consumes topic 'orders', since", "(1 h) or longer"]),
        (
            {
                "bridges": {
                    "a:1": bridge(routes={"orders": ["other.h"]}),
                    "b:2": bridge(routes={"orders": [CHARGE.name]}, started=NOW - 420),
                    "b:3": bridge(routes={"orders": [CHARGE.name]}, started=NOW - 60),
                }
            },
            [
                "Topic 'orders' has different handlers in one group, 'shop', since 2026-01-31 11:53:05 UTC (7 min): ",
                "other.h (a:1)",
                "(b:2, b:3)",
                "own BRIDGE_GROUP",
            ],
        ),
        # What is asked here is one more.
        ({"bridges": {"a:1": bridge(routes={"orders": ["other.h"]})}}, [f"{CHARGE.name} (here)", "own BRIDGE_GROUP"]),
        ({"bridges": {"a:1": bridge(assigned=["orders-1"])}}, ["partition 0 of 'orders', since", "(1 h) or longer"]),
        (
            {"bridges": {"a:1": bridge(assigned=["orders-1"], assigned_since=NOW - 60)}},
            ["No bridge has partition 0 of 'orders', since 2026-01-31 11:59:05 UTC (1 min) or longer: 12 records"],
        ),
        (
            {
                "bridges": {
                    "a:1": bridge(obstacles=["deliveries cannot be handed off: OOM"], obstacles_since=[NOW - 90])
                }
            },
            ["1 of 1 bridge consumes nothing", "1.5 min", "OOM"],
        ),
        (
            {"bridges": {"a:1": bridge(behind=[BEHIND])}},
            ["Consumer lag grows on 'orders'", "7 min", "12,345 records are not read yet", "orders-0", "Add workers"],
        ),
        (
            # Who falls behind for that is not told to add workers.
            {"bridges": {"a:1": bridge(open_transactions=[HELD_BACK], behind=[BEHIND])}},
            ["holds back topic 'orders'", "2 min", "812 records", "orders-0 from offset 90 on", "find-hanging"],
        ),
        (
            # No hot key: it waits for its dead letter.
            {"bridges": {"a:1": bridge(dead_holds=[DEAD_HOLD, {**DEAD_HOLD, "partition": 1}], hot_keys=[HOT])}},
            [
                "4 dead deliveries of 'h' on 'orders' hold the order, since",
                "18 deliveries that are read",
                "orders-0-90",
            ],
        ),
        (
            {"bridges": {"a:1": bridge(hot_keys=[HOT])}},
            ["812 deliveries of 'h' wait for others of their key on orders-0", "2 min", "record orders-0-90"],
        ),
        (
            {"bridges": {"a:1": bridge(paused={"orders-0": "queue orders"}, paused_since={"orders-0": NOW - 300})}},
            ["1 partition is paused", "5 min", "queue orders (1,234 messages)", "orders-0"],
        ),
        (
            {
                "bridges": {
                    "a:1": bridge(
                        unaccounted=[
                            {"topic": "orders", "partition": 1, "handler": "h", "count": 7, "since": NOW - 7200}
                        ]
                    )
                }
            },
            [
                "7 records of orders-1 are unaccounted for by h: committed",
                "Counted since 2026-01-31 10:00:05 UTC (2 h) by a bridge that runs; they may have been missing before.",
                "bridge audit orders",
                "without bridges",
                "run again",
            ],
        ),
        ({"oldest": {("orders", CHARGE.name): 4000.0}}, ["The oldest delivery of 'orders'", "1.11 h"]),
        (
            {
                "letters": [
                    DeadLetterFacts("orders.dlq", CHARGE.name, 3, NOW - 60, "exhausted", "OSError: no", more=True)
                ]
            },
            [
                "At least 3 deliveries of orders.handlers.charge are dead, the latest 3 since",
                "exhausted",
                "'orders.dlq'",
            ],
        ),
        (
            {"oldest": {("orders", "orders.old"): 90.0}},
            ["'orders' to orders.old wait", "1.5 min", "no worker knows it"],
        ),
        (
            {"failing": [WaitingFailures(CHARGE.name, "failed", 200, NOW - 60, "OSError: no", more=True)]},
            ["At least 200 deliveries of orders.handlers.charge failed", "1 min", "OSError: no"],
        ),
        ({"failing": [WaitingFailures(CHARGE.name, "failed", 1, NOW - 1200, "OSError: no")]}, ["1 delivery", "20 min"]),
        (
            {"halts": {"orders": HALT}, "lag": {"orders": 9}},
            [
                "'orders' is halted",
                "2 h",
                "by ann: bank shut.",
                "9 records",
                "`bridge resume orders`",
                "orders-0-7 then runs first",
            ],
        ),
        (
            {"failing": [WaitingFailures(CHARGE.name, "unpublished", 2, NOW - 60, "Timed out.")]},
            [
                "Kafka does not take the dead letters of 2 deliveries",
                ", since 2026",
                "(1 min): Timed out. They are tried",
            ],
        ),
        (
            {"changes": [KafkaLogChange("orders", 1, "expired", 40, 100, 60, NOW - 120)]},
            ["retention deleted 60 records of orders-1 unread", "2 min", "offsets 40 to 99"],
        ),
        (
            {"changes": [KafkaLogChange("orders", 1, "made anew", 0, 9, 0, NOW - 120)]},
            ["orders-1 was recreated", "2 min", "check who deletes topics"],
        ),
        (
            {"changes": [KafkaLogChange("orders", 1, "went back", 7, 9, 0, NOW - 120)]},
            ["orders-1 was truncated", "offset 7", "check Kafka's disks and elections"],
        ),
        (
            {"tiers": [tier(problems=["topic 'orders.retry.5m' keeps records for 1 s."], records=12)]},
            ["Topic 'orders.retry.5m' keeps records for 1 s. It holds 12 records."],
        ),
        (
            {"tiers": [tier(replicas=ReplicaState(6, 2)), replace(tier(replicas=ReplicaState(1)), topic="orders")]},
            ["7 partitions have replicas that are not in sync (orders: 1, orders.retry.5m: 6)", "2 of them have fewer"],
        ),
        (
            {"tiers": [tier(use="drained", records=12, lag={0: 12})]},
            ["No handler parks for 5 min any more", "holds 12 records", "Delete the topic when it is empty"],
        ),
        (
            {"tiers": [tier(use="abandoned", records=1)]},
            ["holds 1 record of 'orders', which no handler names any more", "stopped now", "and delete nothing"],
        ),
        (
            {"tiers": [tier(records=1500, lag={0: 1000, 1: 500}, first_due={0: NOW - 90, 1: NOW - 420})], **RETRIED},
            [
                "Records in 'orders.retry.5m' are overdue",
                "7 min",
                "up to 1,500 records",
                "are due and not handed off.",
            ],
        ),
        (
            {"tiers": [tier(lag={0: 7, 1: 1}, first_due={0: NOW - 61, 1: NOW + 60})], **RETRIED_PAUSED},
            ["up to 7 records of orders.retry.5m-0", "(queue orders)"],
        ),
        (
            {"tiers": [replace(tier(lag={0: 3}, first_due={0: NOW - 120}), topic="orders.replay", kind="replay")]},
            ["'orders.replay' are overdue", "3 records", "(no bridge has it)"],
        ),
        (
            {"oldest": {("orders.retry.5m", RETRY_RECORD): 4000.0}},
            ["The oldest delivery from 'orders.retry.5m' has been in flight", "1.11 h", "inspect active"],
        ),
        ({"memory": [RedisMemory("r:6379", 100, 100)]}, ["Redis at r:6379 is full: 100 of 100 bytes"]),
        ({"memory": [RedisMemory("r:6379", 95, 100)]}, ["nearly full"]),
        ({"memory": [RedisMemory("r:6379", 1, 0, None, "volatile-lru", 3)]}, ["volatile-lru", "3 keys", "noeviction"]),
        ({"memory": [RedisMemory("r:6379", 1, 0, None, None, 3)]}, ["3 keys are gone", "noeviction by now"]),
        (
            {"memory": [RedisMemory("r:6379", 1, 0, "aof_last_write_status is 'err'")]},
            ["to disk: aof_last_write_status"],
        ),
        (
            {
                "memory": [
                    RedisMemory("r:6379", 1, 0, "rdb_last_bgsave_status is 'err'", saved_at=NOW - 420, unsaved=1234)
                ]
            },
            ["to disk, since 2026-01-31 11:53:05 UTC (7 min): rdb_last_bgsave_status is 'err'; 1,234 changes"],
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_problem_is_one_sentence_that_says_what_since_when_and_how_many(change: dict[str, Any], words: list[str]):
    (sentence,) = list_problems(replace(WELL, **change))
    for each in words:
        assert each in sentence


def test_what_waits_for_a_handler_that_no_worker_knows_is_its_own_and_not_the_whole_queue():
    known: dict[str, Any] = {"workers": {"w:1": worker(handlers=[])}, "queues": {"orders": 5000}}
    ready = {"orders": {CHARGE.name: 12.0, "orders.handlers.notify": 4988.0}}
    (problem,) = list_problems(replace(WELL, bridges={"a:1": bridge(ready=ready)}, **known))
    assert "12 of its deliveries wait there" in problem
    assert (problem.many, problem.of) == (12, "deliveries")


def test_advice_names_the_app_that_is_asked_for():
    well = replace(WELL, app="mysite")
    (idle,) = list_problems(replace(well, workers={}, queues={"orders": 0}))
    assert "celery -A mysite worker" in idle
    (old,) = list_problems(replace(well, oldest={("orders", CHARGE.name): 4000.0}))
    assert "celery -A mysite inspect active" in old


@pytest.mark.parametrize(
    "change",
    [
        # A bridge that has just started, or that stands before something, takes its partitions later.
        {"bridges": {"a:1": bridge(assigned=[], started=NOW - 5)}},
        # Nor does one that lost its partitions a moment ago, or begins again after an outage.
        {"bridges": {"a:1": bridge(assigned=[], assigned_since=NOW - 12)}},
        # Bridges of other topics, with the same handlers, or of a version that does not tell which.
        {"bridges": {"a:1": bridge(routes={"orders": [CHARGE.name]}), "b:2": bridge(routes={"returns": ["other.h"]})}},
        {"bridges": {"a:1": bridge(routes={"orders": [CHARGE.name]}), "b:2": bridge()}},
        {
            "bridges": {"a:1": bridge(routes={"orders": ["a", "b"]}), "b:2": bridge(routes={"orders": ["b", "a"]})},
            "handlers": [],
        },
        {"bridges": {"a:1": bridge(obstacles=["joining the consumer group"], obstacles_since=[NOW - 5])}},
        {"bridges": {"a:1": bridge(paused={"orders-0": "queue orders"}, paused_since={"orders-0": NOW - 5})}},
        {"bridges": {"a:1": bridge(behind=[])}},
        {"bridges": {"a:1": bridge(hot_keys=[{**HOT, "seconds": 59.0}])}},
        # What waits for its time, or was due this minute.
        {
            "bridges": {
                "a:1": bridge(
                    paused={"orders.retry.5m-0": PauseReason.NOT_DUE}, paused_since={"orders.retry.5m-0": NOW - 300}
                )
            },
            "tiers": [tier(records=9, lag={0: 9}, first_due={0: NOW + 60})],
        },
        {"tiers": [tier(records=9, lag={0: 9}, first_due={0: NOW - 59})], **RETRIED},
        {"tiers": [tier(use="drained"), tier(use="at need", records=5, lag={0: 5})]},
        {
            "bridges": {"a:1": bridge(started=NOW - 5)},
            "tiers": [tier(records=9, lag={0: 9}, first_due={0: NOW - 900})],
        },
        {"oldest": {("orders.retry.5m", RETRY_RECORD): 400.0}},
        {"memory": [RedisMemory("r:6379", 10**9, 0)]},
        {"changes": [KafkaLogChange("orders", 1, "expired", 40, 100, 60, NOW - 90_000)]},
        {"changes": [KafkaLogChange("orders", 1, "expired", 40, 100, 0, NOW - 5)]},
        {"failing": [WaitingFailures(CHARGE.name, "failed", 3, NOW - 20, "OSError: once")]},
        {"handlers": [replace(CHARGE, longest_wait=7200)], "oldest": {("orders", CHARGE.name): 4000.0}},
    ],
)
def test_what_passes_by_itself_is_no_problem(change: dict[str, Any]):
    assert list_problems(replace(WELL, **change)) == []


def test_a_handler_that_only_a_worker_still_has_is_too_old_like_others():
    drained = replace(WELL, workers={"w:1": worker(handlers=[CHARGE.name, "orders.old"])})
    assert list_problems(replace(drained, oldest={("orders", "orders.old"): 90.0})) == []
    (sentence,) = list_problems(replace(drained, oldest={("orders", "orders.old"): 4000.0}))
    assert "The oldest delivery of 'orders' to orders.old" in sentence


def test_what_is_paused_for_long_is_not_said_to_fall_behind_too():
    paused = {"paused": {"orders-0": "queue orders"}, "paused_since": {"orders-0": NOW - 300}}
    (sentence,) = list_problems(replace(WELL, bridges={"a:1": bridge(**paused, behind=[BEHIND])}))
    assert "is paused" in sentence


def test_a_transaction_that_holds_back_one_partition_hides_no_other_that_falls_behind():
    behind = [{**BEHIND, "partition": 1}]
    found = list_problems(replace(WELL, bridges={"a:1": bridge(open_transactions=[HELD_BACK], behind=behind)}))
    assert any("Consumer lag grows on 'orders'" in sentence for sentence in found)


LOST = {"topic": "orders", "partition": 1, "handler": CHARGE.name, "count": 120, "since": NOW - 60}


def test_of_an_empty_queue_beside_what_is_missing_nobody_says_that_nothing_is_lost():
    wiped = replace(WELL, workers={}, queues={"orders": 0}, bridges={"a:1": bridge(unaccounted=[LOST])})
    queue, lost = list_problems(wiped)
    assert "it is empty" in queue
    assert "120 records of orders-1 are unaccounted for" in lost
    assert "none of them is lost" not in " ".join(list_problems(replace(wiped, queues={"orders": 5})))
    assert "none of them is lost" in list_problems(replace(WELL, workers={}))[0]


def test_a_tier_of_a_handler_that_a_living_bridge_has_is_not_left_over():
    left = [tier(use="drained", records=12, lag={0: 12})]
    others = bridge(routes={"orders": ["old.h"]}, assigned=RETRIED["bridges"]["a:1"]["assigned"])
    (sentence,) = list_problems(replace(WELL, tiers=left, bridges={"a:1": others}))
    assert "different handlers" in sentence


def test_what_several_bridges_stand_before_is_said_once():
    stopped = bridge(obstacles=["Kafka does not answer: a"], obstacles_since=[NOW - 30])
    other = bridge(obstacles=["Kafka does not answer: b"], obstacles_since=[NOW - 90])
    (sentence,) = list_problems(replace(WELL, bridges={"a:1": stopped, "a:2": other}))
    assert "2 of 2 bridges" in sentence
    assert "1.5 min" in sentence


def test_without_a_worker_that_knows_it_an_old_delivery_is_not_said_twice():
    (sentence,) = list_problems(replace(WELL, workers={}, oldest={("orders", CHARGE.name): 4000.0}))
    assert "No worker consumes" in sentence


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0 s"), (59, "59 s"), (420, "7 min"), (12_600, "3.5 h"), (200_000, "2.31 d")]
)
def test_times_are_shown_in_their_largest_unit(seconds: float, shown: str):
    assert format_span(seconds) == shown


def test_of_a_halted_topic_nothing_else_is_said_of_what_stands_still():
    known: dict[str, Any] = {
        "oldest": {("orders", CHARGE.name): 9_000.0},
        "bridges": {"b": bridge(paused={"orders-0": "halted"}, paused_since={"orders-0": NOW - 900})},
        "halts": {"orders": HALT},
    }
    (problem,) = list_problems(replace(WELL, **known))
    assert problem.startswith("Topic 'orders' is halted")


def test_a_topic_that_is_paused_because_too_many_die_is_told_at_once_and_once():
    paused = {"paused": {"orders-0": "dead letters of orders"}, "paused_since": {"orders-0": NOW - 5}}
    later = {"paused": {"orders-1": "dead letters of orders"}, "paused_since": {"orders-1": NOW - 300}}
    (sentence,) = list_problems(replace(WELL, bridges={"a:1": bridge(**paused), "b:1": bridge(**later)}))
    assert "Topic 'orders' is paused" in sentence
    assert "5 min" in sentence
    assert "kafka_pause_dead_letters_a_minute" in sentence


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ("bytes of queue orders", "kafka_pause_above_bytes"),
        ("work in queue orders", "add workers"),
        ("parked records of orders", "kafka_pause_above_parked"),
        (PauseReason.SHARE_USED, "when the cause ends; if it stays, add workers, or raise kafka_retry_share"),
        (PauseReason.START_UNKNOWN, "when the cause ends; see the bridge's log"),
        (PauseReason.SOME_DEPENDENCIES_DOWN, "when the cause ends; restore the dependency (dependency_down)"),
        (PauseReason.WINDOW_FULL, "when the cause ends; find the oldest delivery (delivery_old)"),
        (PauseReason.KEYS_BUSY, "when the cause ends; make that key's deliveries faster (key_hot)"),
    ],
)
def test_each_reason_of_a_pause_has_its_own_advice(why, advice):
    paused = {"paused": {"orders-0": why}, "paused_since": {"orders-0": NOW - 300}}
    (sentence,) = list_problems(replace(WELL, bridges={"a:1": bridge(**paused)}))
    assert why in sentence
    assert advice in sentence


#: What a tier holds after failures.
PARKED = WaitingFailures(CHARGE.name, "failed", 305, NOW - 900, "OSError: shut")
DOWN = DependencyDown("bank", "open", NOW - 900, "57 of 60 failed.", (CHARGE.name,), SetAside(344, 10_000))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"next": NOW + 1}, "No trial has begun yet; the first may begin in 1 s."),
        (
            {"tried": NOW - 7, "next": NOW + 3},
            "The last trial began 2026-01-31 11:59:58 UTC; the next may begin in 3 s.",
        ),
        ({"tried": NOW - 7, "next": NOW - 3}, "the next may begin now."),
        (
            {"state": "probing", "tried": NOW - 120, "next": NOW + 180, "silent": 4},
            "A trial delivery is in flight, since 2026-01-31 11:58:05 UTC (2 min); another follows in 3 min. "
            "4 earlier trials did not end in time, so trials get rarer: set a time limit (`time_limit`)",
        ),
    ],
)
def test_what_is_down_says_when_it_was_tried_is_tried_next_and_what_hangs(how: dict[str, Any], words: str):
    (sentence,) = list_problems(replace(WELL, breakers=[replace(DOWN, **how)]))
    assert words in sentence


def test_what_waits_for_what_is_down_is_told_in_deliveries():
    (sentence,) = list_problems(replace(WELL, breakers=[DOWN]))
    assert "Waiting: 10,000 deliveries in 344 Celery messages." in sentence
    (sentence,) = list_problems(replace(WELL, unnamed={"treasury": SetAside(1, 1)}))
    assert "'treasury'; waiting for it: 1 delivery in 1 Celery message." in sentence


def test_a_handler_whose_retries_wait_in_kafka_alone_is_said_to_fail():
    (sentence,) = list_problems(replace(WELL, tiers=[tier(records=305, lag={0: 305}, failed=[PARKED])]))
    for words in ("305 deliveries of orders.handlers.charge failed", "15 min", "OSError: shut"):
        assert words in sentence


def test_an_error_that_ends_with_a_full_stop_is_followed_by_no_other():
    failed = replace(PARKED, error="ValueError: it was given 'a text'.")
    (sentence,) = list_problems(replace(WELL, failing=[failed]))
    assert "it was given 'a text'. " in sentence


def test_what_waits_in_the_broker_and_in_kafka_is_one_sentence():
    queued = WaitingFailures(CHARGE.name, "failed", 7, NOW - 60, "OSError: late", more=True)
    (sentence,) = list_problems(replace(WELL, failing=[queued], tiers=[tier(failed=[PARKED])]))
    assert sentence.startswith("At least 312 deliveries of orders.handlers.charge failed")
    assert "15 min" in sentence


def test_where_no_bridge_runs_what_is_parked_waits_too():
    held = [tier(records=300, lag={0: 300}, first_due={0: NOW - 120}), tier(use="abandoned", records=0)]
    (sentence,) = list_problems(replace(WELL, lag={"orders": 0}, bridges={}, tiers=held))
    assert ": 300 records in Kafka wait, 300 of them in retry and replay topics" in sentence
    assert "the first of them due since" in sentence
    assert "(2 min)" in sentence


def test_of_a_halted_topic_everything_that_waits_is_counted():
    held = [tier(records=12, lag={0: 12})]
    (sentence,) = list_problems(
        replace(
            WELL,
            halts={"orders": HALT},
            lag={"orders": 0},
            aside={"orders": SetAside(40, 900, whole=False)},
            tiers=held,
        )
    )
    assert "12 records in Kafka wait, 12 of them in retry and replay topics" in sentence
    assert "Set aside until then: about 900 deliveries in 40 Celery messages." in sentence


def test_a_halt_of_a_handler_that_was_renamed_says_how_it_is_called_now():
    now = replace(AUDIT, aliases=(CHARGE.name,))
    halted = HandlerHalt(HaltScope("orders", CHARGE.name), HALT)
    (problem,) = find_handler_halts(replace(WELL, handlers=[now], handler_halts=[halted]))
    assert problem.startswith(f"Handler {CHARGE.name!r} of topic 'orders' (now {AUDIT.name!r}) is halted, since ")
    assert (problem.handler, "goes on." in problem) == (AUDIT.name, False)


@pytest.mark.parametrize(
    ("handlers", "key", "others"),
    [
        ((CHARGE, AUDIT), None, True),
        ((CHARGE,), None, False),
        ((CHARGE,), "4711", True),
        ((CHARGE, replace(AUDIT, topics=("mail",))), None, False),
    ],
)
def test_a_halt_says_that_all_else_goes_on_only_if_there_is_anything_else(
    handlers: tuple[HandlerFacts, ...], key: str | None, others: bool
):
    halted = HandlerHalt(HaltScope("orders", CHARGE.name, key), HALT)
    (problem,) = find_handler_halts(replace(WELL, handlers=handlers, handler_halts=[halted]))
    assert ("All else of the topic goes on." in problem) is others
    (of_all,) = find_handler_halts(replace(WELL, handlers=handlers, handler_halts=[halted], halts={"orders": HALT}))
    assert "goes on." not in of_all


@pytest.mark.parametrize(
    ("key", "begin", "end"),
    [
        (None, "Handler 'orders.handlers.charge' of topic 'orders' is halted, since ", ""),
        ("4711", "Handler 'orders.handlers.charge' of topic 'orders', key '4711', is halted, since ", " --key 4711"),
    ],
)
def test_a_halted_handler_or_key_is_told_with_what_waits_and_the_command_that_ends_it(
    key: str | None, begin: str, end: str
):
    scope = HaltScope("orders", CHARGE.name, key)
    halted = HandlerHalt(scope, HALT, SetAside(40, 900, whole=False))
    (problem,) = list_problems(replace(WELL, handler_halts=[halted], oldest={("orders", CHARGE.name): 4000.0}))
    assert problem.startswith(begin)
    assert "by ann: bank shut. Waiting for it: about 900 deliveries in 40 Celery messages." in problem
    assert f"`bridge resume orders --handler orders.handlers.charge{end}`" in problem
    assert (problem.row.identifier, problem.many, problem.of) == ("handler_halted", 900, "deliveries")
    (mail,) = list_problems(replace(WELL, oldest={("mail", CHARGE.name): 4000.0}))
    assert "oldest delivery" in mail


@pytest.mark.parametrize(
    ("scope", "overdue"),
    [
        (HaltScope("orders", CHARGE.name), ""),
        (HaltScope("orders", CHARGE.name, "4711"), "11:58:05 UTC (2 min)"),
        (HaltScope("orders", "h"), "11:58:05 UTC (2 min)"),
        (HaltScope("mail", CHARGE.name), "11:58:05 UTC (2 min)"),
    ],
)
def test_what_is_due_of_a_halted_handler_is_not_overdue_and_of_the_others_it_is(scope: HaltScope, overdue: str):
    due: dict[str, Any] = {"tiers": [tier(lag={0: 7}, first_due={0: NOW - 120})], **RETRIED}
    found = list_problems(replace(WELL, handler_halts=[HandlerHalt(scope, HALT)], **due))
    assert [overdue in each for each in found if "overdue" in each] == ([True] if overdue else [])


def test_what_is_overdue_behind_records_of_a_halted_handler_is_told_since_it_was_due():
    dues = {0: {"h": NOW - 900, CHARGE.name: NOW - 120}}
    due: dict[str, Any] = {"tiers": [tier(dues=dues, lag={0: 7})], **RETRIED}
    found = list_problems(replace(WELL, handler_halts=[HandlerHalt(HaltScope("orders", "h"), HALT)], **due))
    assert ["(2 min)" in each for each in found if "overdue" in each] == [True]


@pytest.mark.parametrize(
    ("paused", "told"),
    [({}, 1), ({"paused": {"orders-0": PauseReason.SOME_HALTED}, "paused_since": {"orders-0": NOW - 120}}, 0)],
)
def test_the_lag_of_the_other_handlers_is_told_while_one_is_halted(paused: dict[str, Any], told: int):
    halted = HandlerHalt(HaltScope("orders", "h"), HALT)
    known = replace(WELL, handler_halts=[halted], bridges={"a:1": bridge(behind=[BEHIND], **paused)})
    assert sum("Consumer lag grows" in each for each in list_problems(known)) == told


@pytest.mark.parametrize("state", ["open", "probing", "ramping"])
def test_what_waits_for_what_its_handler_needs_neither_fails_nor_is_old(state: str):
    known = replace(
        WELL,
        breakers=[replace(DOWN, state=state)],
        oldest={("orders", CHARGE.name): 4000.0},
        failing=[PARKED],
        tiers=[tier(failed=[PARKED])],
    )
    assert [words for words in list_problems(known) if "circuit breaker" not in words] == []
    unpublished = WaitingFailures(CHARGE.name, "unpublished", 2, NOW - 60, "OSError: no")
    assert "dead letters" in list_problems(replace(known, failing=[unpublished]))[-1]


@pytest.mark.parametrize("known", [[tier()], []], ids=["that is listed", "that is gone"])
@pytest.mark.parametrize("keeps", [{"halts": {"orders": HALT}}, {"breakers": [DOWN]}], ids=lambda keeps: str(*keeps))
def test_what_came_by_a_retry_topic_and_is_kept_back_is_not_old(keeps: dict[str, Any], known: list[TopicFacts]):
    came: dict[str, Any] = {
        "oldest": {("orders.retry.5m", RETRY_RECORD): 4000.0},
        "sources": {} if known else {"orders.retry.5m": "orders"},
    }
    assert [words for words in list_problems(replace(WELL, tiers=known, **came, **keeps)) if "in flight" in words] == []
    # What keeps back others says nothing of it.
    others: dict[str, Any] = {"halts": {"bills": HALT}, "breakers": [replace(DOWN, handlers=("bills.pay",))]}
    assert [words for words in list_problems(replace(WELL, tiers=known, **came, **others)) if "in flight" in words]


def test_of_a_halted_topic_it_is_not_said_that_what_failed_runs_again():
    def said(topics: tuple[str, ...]) -> str:
        known = replace(WELL, handlers=[replace(CHARGE, topics=topics)], halts={"orders": HALT}, failing=[PARKED])
        (sentence,) = [words for words in list_problems(known) if "wait for a retry" in words]
        return sentence

    assert "run again" not in said(("orders",))
    assert said(("orders",)).endswith("They wait while 'orders' is halted: fix the cause, then `bridge resume orders`.")
    assert said(("orders", "bills")).endswith("spent. Those of 'orders' wait while it is halted.")


def test_what_was_lost_with_a_ledger_below_a_retry_topic_is_said_once_with_its_source():
    lost = [
        {"topic": "orders.retry.5m", "partition": n, "handler": RETRY_RECORD, "count": 7, "since": NOW - 60}
        for n in (0, 1)
    ]
    (sentence,) = list_problems(replace(WELL, bridges={"a:1": bridge(unaccounted=lost)}, tiers=[tier()]))
    assert "14 records of 'orders.retry.5m'" in sentence
    assert "`bridge audit orders`" in sentence
    assert "bridge reset orders --to OFFSET" in sentence
    assert "reset orders.retry.5m" not in sentence


def test_a_retry_topic_that_was_deleted_with_what_waited_in_it_is_said_with_how_much():
    deleted = [KafkaLogChange("orders.retry.5m", n, "deleted", 10, 1010, 1000, NOW - 120) for n in (0, 1)]
    (sentence,) = list_problems(replace(WELL, changes=deleted))
    assert "'orders.retry.5m' was deleted" in sentence
    assert "2 min" in sentence
    assert "up to 2,000 records" in sentence
    empty = KafkaLogChange("orders.retry.5m", 0, "deleted", 10, 10, 0, NOW - 120)
    assert list_problems(replace(WELL, changes=[empty])) == []


def test_a_retry_topic_that_was_deleted_while_nobody_looked_is_said_with_whose_deliveries_are_missing():
    gone = DeletedTopic("orders.retry.5m", "orders", NOW - 120, {"charge": 5, "mail": 2}, lying=3)
    (sentence,) = list_problems(replace(WELL, gone=[gone]))
    assert sentence.startswith("'orders.retry.5m' was deleted, seen since")
    assert "at least 4 deliveries of 'orders' are parked and in no retry topic" in sentence
    assert "(parked: charge (5), mail (2))" in sentence
    assert "`bridge audit orders`" in sentence
    # What a bridge told as it was deleted is the same.
    deleted = KafkaLogChange("orders.retry.5m", 0, "deleted", 10, 1010, 1000, NOW - 120)
    assert list_problems(replace(WELL, gone=[gone], changes=[deleted])) == [sentence]
    assert list_problems(replace(WELL, gone=[gone._replace(lying=7)])) == []


def test_what_retention_took_in_a_retry_topic_is_said_to_be_parked():
    (sentence,) = list_problems(
        replace(WELL, tiers=[tier()], changes=[KafkaLogChange("orders.retry.5m", 0, "expired", 0, 5, 5, NOW)])
    )
    assert "`bridge audit orders`" in sentence


def test_a_tier_with_which_no_bridge_starts_says_so():
    (sentence,) = list_problems(
        replace(WELL, tiers=[tier(problems=["topic 'x' keeps records for 1 s."], refused=True)])
    )
    assert "no bridge starts again" in sentence


def test_a_problem_is_its_sentence_and_says_the_same_as_values():
    (found,) = list_problems(GroupFacts(now=60.0, group="g", silent=["Redis at r does not answer: refused. Start it."]))
    assert found == "Redis at r does not answer: refused. Start it."
    values = found.data()
    assert (values["kind"], values["what"]) == ("silent", "Redis at r does not answer")
    assert (values["since"], values["many"], values["lost"]) == (None, None, None)
    (found,) = list_problems(GroupFacts(60.0, "g", bridges={}, lag={"orders": 7}, seen={"group g": 5.0}))
    values = found.data()
    assert copy.deepcopy(found).data() == values
    assert values["sentence"] == str(found)
    assert (values["kind"], values["since"]) == ("no bridge", "1970-01-01T00:00:05+00:00")
    assert (values["many"], values["of"], values["lost"], values["do"]) == (7, "records", 0, "start `bridge run`")


def test_since_when_kafka_does_not_answer_is_known_from_the_bridges():
    said = "Kafka does not answer: no connection. Start it."
    waits = bridge(obstacles=["Kafka does not answer: all down."], obstacles_since=[NOW - 420])
    problem = list_problems(replace(WELL, silent=[said], bridges={"a:1": waits}))[0]
    assert problem == "Kafka does not answer, since 2026-01-31 11:53:05 UTC (7 min): no connection. Start it."
    assert (problem.what, problem.since) == ("Kafka does not answer", NOW - 420)
    # Another server's outage, or a bridge with another obstacle, says nothing about Kafka.
    joins = bridge(obstacles=["joining the consumer group"], obstacles_since=[NOW - 420])
    assert list_problems(replace(WELL, silent=[said], bridges={"a:1": joins}))[0] == said
    assert list_problems(replace(WELL, silent=["Redis is down: x"], bridges={"a:1": waits}))[0] == "Redis is down: x"


def test_a_full_redis_is_one_problem_with_its_cause_and_since_when():
    full = RedisMemory("r:6379", 100, 100, unlisted="; not confirmed: worker a")
    said = "deliveries cannot be handed off: command not allowed when used memory > 'maxmemory'"
    waits = bridge(obstacles=[said], obstacles_since=[NOW - 420])
    (problem,) = list_problems(replace(WELL, memory=[full], bridges={"a:1": waits}))
    assert problem == (
        "Redis at r:6379 is full, since 2026-01-31 11:53:05 UTC (7 min): 100 of 100 bytes (maxmemory). 1 of 1 bridge "
        "consumes nothing. Nothing more is handed off, nothing is lost. Bridges and workers that are not listed may "
        "run; not confirmed: worker a. Raise its maxmemory, or let workers empty the queues."
    )
    assert (problem.row.identifier, problem.since) == ("redis_memory_or_disk", NOW - 420)
    # An obstacle of another kind is a problem beside it.
    joins = bridge(obstacles=["Kafka does not answer: x"], obstacles_since=[NOW - 420])
    assert len(list_problems(replace(WELL, memory=[full], bridges={"a:1": joins}))) == 2


#: The problems whose beginning nobody notes, by the function that makes them, and why.
UNDATED = {
    "find_redis_problems": "INFO has what Redis uses, and what it evicted since its start: no time",
    "find_unnamed_dependencies": "the broker has no time of a message that a gate keeps",
    "find_unfit_topics": "Kafka has no time of a topic's settings",
    "find_unsynced_replicas": "Kafka has no time of a replica's state",
    "find_unreadable_partitions": "Kafka has no time of a partition's leader",
    "find_drained_tiers": "no code says when a handler stopped to use a topic",
    "describe_foreign_member": "Kafka has no time of a member's subscription",
    "find_stale_policies": "no code says when a handler stopped to take an option",
    "_describe_database_fault": "only the command asks the database",
}


def undated_problems() -> Iterator[str]:
    """Yield the functions of the product that make a problem without the time of its beginning."""
    files = [*(Path(__file__).parents[2] / "bridge").rglob("*.py")]
    for file in (file for file in files if "make_problem(" in file.read_text()):
        for function in ast.walk(parse_source(file)):
            if isinstance(function, ast.FunctionDef):
                calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
                made = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "make_problem"]
                if not all(any(keyword.arg == "since" for keyword in each.keywords) for each in made):
                    yield function.name


def test_each_problem_has_the_time_of_its_beginning_unless_nobody_notes_it():
    assert {*undated_problems()} == UNDATED.keys()


def test_since_when_kafka_refuses_topics_is_known_from_the_bridge_that_met_it_first():
    first = bridge(unmade=["'orders.dlq': a"], unmade_since=[NOW - 420])
    other = bridge(unmade=["'orders.dlq': a", "'mail.dlq': b"], unmade_since=[NOW - 60, NOW - 30])
    (problem,) = list_problems(replace(WELL, bridges={"a:1": first, "a:2": other}))
    assert problem.since == NOW - 420
    assert "2 topics of the group, since 2026-01-31 11:53:05 UTC (7 min): 'mail.dlq': b; 'orders.dlq': a." in problem
    # One of an older version does not say it.
    (problem,) = list_problems(replace(WELL, bridges={"a:1": bridge(unmade=["'orders.dlq': a"])}))
    assert problem.since is None
    assert "1 topic of the group: 'orders.dlq': a." in problem
