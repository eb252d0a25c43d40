"""Time limits are a message's: neither its neighbours' nor the marks' time counts."""

from collections import Counter

import pytest
import redis

from tests.delivery_checks import all_settled, choose
from tests.processes import Stack, eventually
from tests.servers.redis import RedisServer


@pytest.fixture
def limited(stack: Stack) -> Stack:
    choose(stack, {name: {"commit": "completion"} for name in ("limited", "unlimited")}, lost_pauses=[0.2, 0.2])
    stack.environ["HANDLERS"] = "tests.handlers.limited"
    stack.make_topics("limited", "unlimited")
    return stack


@pytest.mark.slow
def test_a_limit_ends_the_message_that_overran_and_none_beside_it(limited: Stack):
    seconds = [0.15] * 10 + [9] + [0.15] * 5
    placed = limited.produce(
        "limited", *({"seconds": each} for each in seconds), {"seconds": 9, "deaf": True}, {"seconds": 0.15}
    )
    limited.bridge()
    eventually(lambda: limited.waiting() == 1, 20, "one batch")
    worker = limited.worker("-c", "1")
    found = {letter.origin: letter.ours for letter in limited.dead("limited", 2, 30)}
    soft, hard = placed[10], placed[16]
    assert {place: (ours["reason"], ours["error_class"].rpartition(".")[2]) for place, ours in found.items()} == {
        soft: ("exhausted", "SoftTimeLimitExceeded"),
        hard: ("poison", "TimeLimitExceeded"),
    }
    all_settled(limited, "limited", done=16, dead=2)
    begun = Counter(run.coordinates for run in limited.runs() if run.outcome == "begun")
    assert begun == Counter({**dict.fromkeys(placed, 1), hard: 3}), "once in its batch, then alone until it is poison"
    worker.says("overran its hard time limit of 2 s")


@pytest.mark.slow
def test_in_an_order_too_the_dead_letter_names_the_hard_limit_that_ended_its_processes(limited: Stack):
    choose(limited, {"limited": {"commit": "completion", "order": "partition"}}, lost_pauses=[0.2, 0.2])
    limited.environ["HANDLERS"] = "tests.handlers.limited"
    placed = limited.produce(
        "limited", {"seconds": 0.1}, {"seconds": 9, "deaf": True}, *[{"seconds": 0.1} for _ in range(3)]
    )
    limited.bridge()
    eventually(lambda: limited.waiting() == 1, 20, "one batch")
    limited.worker("-c", "1")
    (letter,) = limited.dead("limited", 1, 40)
    assert letter.origin == placed[1]
    assert letter.ours["error_class"].endswith("TimeLimitExceeded")
    assert letter.ours["error_message"] == "hard time limit of 2 s; its process was lost 3 times"
    all_settled(limited, "limited", done=4, dead=1)
    assert [run.coordinates for run in limited.runs() if run.outcome == "done"] == [placed[0], *placed[2:]]


@pytest.mark.slow
def test_what_is_done_is_done_although_the_ledger_is_away_for_longer_than_the_limits(
    limited: Stack, own_redis: RedisServer
):
    limited.environ["LEDGER_URL"] = own_redis.url
    bridge = limited.bridge()
    worker = limited.worker("-c", "1")
    limited.produce("limited", {"seconds": 0.01})
    all_settled(limited, "limited", done=1)
    placed = limited.produce("limited", {"seconds": 0.8})
    eventually(lambda: limited.runs(coordinates=placed[0]), 10)
    own_redis.stop()
    worker.says("put back 1 times", 40)
    worker.says("could not read fates", 20)
    own_redis.start()
    eventually(bridge.ready, 20)
    all_settled(limited, "limited", done=2)
    assert [run.outcome for run in limited.runs(coordinates=placed[0])] == ["begun", "done"]
    assert worker.exit_code is None


@pytest.mark.slow
def test_what_is_done_while_redis_is_full_is_marked_and_acknowledged(limited: Stack, own_redis: RedisServer):
    limited.environ["CELERY_BROKER_URL"] = limited.broker = own_redis.url
    limited.bridge()
    worker = limited.worker("-c", "1")
    placed = limited.produce("limited", {"seconds": 0.9}, {"seconds": 0.1})
    eventually(lambda: limited.runs(coordinates=placed[0]), 10)
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory", 1)
        eventually(lambda: set(limited.done()) == set(placed), 10)
        eventually(lambda: not limited.held_ids() and not limited.waiting(), 10, "acknowledged")
        client.config_set("maxmemory", 0)
    all_settled(limited, "limited", done=2)
    assert len(limited.runs()) == 4
    assert worker.count("fates could not be marked") == 0
    assert worker.exit_code is None


@pytest.mark.slow
@pytest.mark.parametrize("way", ["settings", "command line"])
def test_a_limit_of_the_whole_worker_is_a_messages_and_not_its_batchs(limited: Stack, way: str):
    if way == "settings":
        limits = {"task_time_limit": 1, "task_soft_time_limit": 0.6}
        choose(limited, {"unlimited": {"commit": "completion"}}, lost_pauses=[0.2, 0.2], **limits)
        limited.environ["HANDLERS"] = "tests.handlers.limited"
    limited.produce("unlimited", *[{"seconds": 0.3}] * 6, {"seconds": 9}, {"seconds": 0.3})
    limited.bridge()
    eventually(lambda: limited.waiting() == 1, 20, "one batch")
    given = ("--time-limit", "1", "--soft-time-limit", "0.6") if way == "command line" else ()
    worker = limited.worker("-c", "1", *given)
    (letter,) = limited.dead("unlimited", 1, 30)
    assert letter.ours["error_class"].endswith("SoftTimeLimitExceeded")
    all_settled(limited, "unlimited", done=7, dead=1)
    begun = [run for run in limited.runs() if run.outcome == "begun"]
    assert len(begun) == 8, "none twice"
    assert "lost" not in worker.text
