"""The proof: `bridge audit`, `bridge status`, the gauges."""

from functools import partial

import pytest

from bridge.formats.delivery import Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.kafka.publisher import Publisher
from bridge.ledger import Accounts, Fate, Mark
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import AUDITED, all_settled, audit, choose, command, json_of, ledger
from tests.processes import Stack, eventually
from tests.servers.redis import RedisServer

NAMES = {
    "handler",
    "partition",
    "first",
    "end",
    "committed",
    "joined",
    *AUDITED,
    "gaps",
    "unaccounted_at",
    "imported",
    "forgotten",
    "forgotten_at",
    "expired",
    "evicted",
    "oldest",
    "oldest_since",
    "letters_missing",
    "parked_nowhere",
}


@pytest.mark.timeout(300)
def test_what_is_not_read_yet_is_open_and_no_fault_and_a_missing_topic_counts_as_empty(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "keyed")
    stack.produce("orders", *range(7))
    found = audit(stack)
    assert (found["open"], found["unaccounted"], found["clean"]) == (7, 0, True)
    assert audit(stack, "keyed")["open"] == 0
    assert json_of(stack, "audit", stack.topic("line"))["lines"] == []
    assert "no handler names topic" in command(stack, "audit", "nobody", code=64)


@pytest.mark.slow
def test_the_report_names_each_fate_and_exits_1_if_anything_is_unaccounted_for(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", partitions=2)
    bridge, worker = stack.bridge(), stack.worker()
    stack.produce("orders", *range(20), {"dead": True}, partition=0)
    all_settled(stack, "orders", done=20, dead=1)
    worker.terminate()
    stack.produce("orders", *range(3), partition=1)
    eventually(lambda: stack.waiting() == 3, 20)
    found = audit(stack)
    assert {name: found[name] for name in AUDITED} == {
        "done": 20,
        "handed": 3,
        "parked": 0,
        "dead": 1,
        "discarded": 0,
        "open": 0,
        "unaccounted": 0,
    }
    assert found["topic"] == stack.topic("orders")
    (zero, one) = found["lines"]
    assert set(zero) == NAMES
    assert (zero["committed"], zero["end"], zero["oldest"]) == (21, 21, [])
    (deaths,) = found["deaths"]
    assert (deaths["handler"], deaths["reason"], deaths["count"]) == ("orders", "permanent", 1)
    assert deaths["error"]
    assert deaths["since"] == deaths["last"] > "2020"
    assert one["oldest_since"] > "2020"
    assert (one["partition"], one["handed"], one["oldest"]) == (1, 3, [0, 1, 2])
    printed = command(stack, "audit", stack.topic("orders"))
    assert "nothing is unaccounted for" in printed
    topic = stack.topic("orders")
    with ledger(stack, "orders") as (fates, account):
        for offset in (4, 5, 9):
            fates.forget(account, offset, offset)
    found = audit(stack, code=1)
    assert (found["unaccounted"], found["clean"]) == (3, False)
    assert found["lines"][0]["unaccounted_at"] == [4, 5, 9]
    assert "unaccounted for: 3" in command(stack, "audit", topic, code=1)

    def shown(fate: str, partition: str) -> float:
        return bridge.metric("bridge_fates", topic=topic, partition=partition, handler="orders", fate=fate)

    eventually(lambda: bridge.metric("bridge_unaccounted", topic=topic, handler="orders") == 3, 40)
    assert [shown("done", "0"), shown("open", "0"), shown("dead", "0"), shown("handed", "1")] == [17, 3, 1, 3]


@pytest.mark.slow
def test_what_was_handed_off_before_a_restored_ledger_knew_of_the_topic_is_named_too(stack: Stack):
    choose(stack, {"orders": {"commit": "handoff"}})
    stack.make_topics("orders")
    stack.produce("orders", *range(50))
    bridge = stack.bridge()
    eventually(lambda: stack.committed("orders") == 50, 20)
    with stack.redis() as client, client.pipeline() as pipe:
        # As a dump from before has it: the same data set, for another group had begun it.
        epoch = client.get("ledger:epoch")
        pipe.flushdb()
        pipe.set("ledger:epoch", epoch)
        pipe.execute()
    found = audit(stack, code=1)
    assert (found["forgotten"], found["unaccounted"], found["clean"]) == (50, 0, False)
    bridge.says("set back to before it knew of this partition: deliveries handed off below offset 50")
    # Of what nothing was ever handed off nothing is lost: the replay topic is one.
    assert bridge.count("below offset 0 ") == 0
    (delivery,) = json_of(stack, "find", f"{stack.topic('orders')}-0-7")["deliveries"]
    assert "forgotten" in delivery["where"]
    assert "joined" not in delivery["where"]
    found = audit(stack, code=1)
    assert (found["forgotten"], found["clean"]) == (50, False)


@pytest.mark.slow
def test_what_was_handed_off_before_the_ledger_was_wiped_is_named_until_it_is_read_again(stack: Stack):
    choose(stack, {"orders": {"commit": "handoff"}})
    stack.make_topics("orders")
    stack.produce("orders", *range(50))
    bridge = stack.bridge()
    eventually(lambda: stack.committed("orders") == 50, 20)
    with stack.redis() as client:
        client.flushdb()
    found = audit(stack, code=1)
    assert (found["forgotten"], found["unaccounted"], found["clean"]) == (50, 0, False)
    bridge.says("the ledger was wiped: deliveries handed off below offset 50")
    # It is not taken for settled by what comes then, nor by the next bridge.
    stack.produce("orders", 50)
    eventually(lambda: stack.committed("orders") == 51, 20)
    assert bridge.terminate() == 0
    topic = stack.topic("orders")
    assert "forgotten: 50" in command(stack, "audit", topic, code=1)
    command(stack, "reset", topic, "--to", "earliest")
    assert audit(stack)["forgotten"] == 0
    stack.bridge()
    eventually(lambda: stack.waiting() == 51, 20, "all of it is handed off, once")
    eventually(lambda: stack.committed("orders") == 51, 20)
    assert audit(stack)["clean"]


@pytest.mark.slow
def test_what_was_queued_before_a_switch_to_completion_is_missed_after_a_wipe(stack: Stack):
    choose(stack, {"orders": {"commit": "handoff"}})
    stack.make_topics("orders")
    stack.produce("orders", *range(5))
    bridge = stack.bridge()
    eventually(lambda: stack.committed("orders") == 5, 15)
    assert bridge.terminate() == 0
    choose(stack, {"orders": {"commit": "completion"}})
    bridge = stack.bridge()
    stack.produce("orders", 5)
    eventually(lambda: stack.waiting() == 6, 15)
    with ledger(stack, "orders") as (fates, account):
        fates.write([Mark(account, [5], Fate.DONE)])
    eventually(lambda: stack.committed("orders") == 6, 15)
    bridge.kill()
    with stack.redis() as client:
        client.flushdb()
    stack.bridge().says("the ledger was wiped: deliveries handed off below offset 6")
    found = audit(stack, code=1)
    assert (found["forgotten"], found["clean"]) == (6, False)


@pytest.mark.slow
def test_a_handler_that_was_removed_keeps_its_unsettled_deliveries_in_the_audit(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "elsewhere")
    stack.produce("orders", *range(10))
    with ledger(stack, "orders") as (fates, account):
        was = account._replace(handler="orders.was")
        fates.write([Mark(was, [0, 2], Fate.DONE), Mark(was, [3], Fate.HANDED), Mark(was, [4], Fate.DISCARDED)])
        Accounts(fates).join(was, 0)
        # Its last commit; what came after it is no concern of its.
        Accounts(fates).raise_reached({was: 5})
        away = account._replace(handler="gone", topic=stack.topic("unnamed"))
        Accounts(fates).join(away, 0)
    found = audit(stack, code=1)
    (now, gone) = found["lines"]
    assert (now["handler"], now["imported"], now["open"]) == ("orders", True, 10)
    assert (gone["handler"], gone["imported"]) == ("orders.was", False)
    assert (gone["done"], gone["handed"], gone["oldest"], gone["open"]) == (2, 1, [3], 1)
    assert (gone["unaccounted"], gone["unaccounted_at"]) == (1, [1])
    assert "no handler here has this name" in command(stack, "audit", stack.topic("orders"), code=1)
    assert json_of(stack, "audit", stack.topic("unnamed"))["lines"] == []


@pytest.mark.slow
def test_a_reset_that_the_ledger_did_not_hear_of_has_moved_nothing(stack: Stack, mortal_redis: RedisServer):
    stack.broker = stack.environ["CELERY_BROKER_URL"] = mortal_redis.fresh_url()
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders")
    stack.produce("orders", *range(10))
    topic = stack.topic("orders")
    mortal_redis.stop()
    try:
        assert "start it" in command(stack, "reset", topic, "--to", "latest", code=2)
        assert stack.committed("orders") == 0
    finally:
        mortal_redis.start()
    # What discards is shown, and asked for.
    shown = command(stack, "reset", topic, "--to", "latest", code=2)
    assert f"{topic}-0: nothing → 10 skips 10 deliveries that have not run" in shown
    assert "--yes" in shown
    assert stack.committed("orders") == 0
    assert f"{topic}-0: nothing → 10" in command(stack, "reset", topic, "--to", "latest", "--yes")
    assert stack.committed("orders") == 10
    with ledger(stack, "orders") as (fates, account):
        assert fates.fates(account, 0, 9) == bytes([Fate.DISCARDED] * 10)


def test_a_dead_delivery_without_a_dead_letter_is_a_fault(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "orders.dlq")
    stack.produce("orders", *range(5))
    with ledger(stack, "orders") as (fates, account):
        fates.write([Mark(account, range(5), Fate.DEAD)])
    found = audit(stack, code=1)
    assert found["lines"][0]["letters_missing"] == [0, 1, 2, 3, 4]
    assert "without a dead letter" in command(stack, "audit", stack.topic("orders"), code=1)


@pytest.mark.slow
def test_a_dead_letter_of_an_earlier_log_is_not_that_of_the_same_offset_now(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", "orders.dlq")
    group, topic = stack.environ["BRIDGE_GROUP"], stack.topic("orders")
    chosen = Settings(FileSettings(), EnvironmentSettings(), "", {"bootstrap.servers": stack.kafka}).of_group(group)
    dead = Dead("permanent", Failure("E", "of the earlier log", "", 1))
    stack.produce("orders", 0)
    with ledger(stack, "orders") as (fates, account):
        earlier, now = (
            Delivery(Message(topic, 0, 0, timestamp=5, origin=f"c {group} {log}"), account.handler)
            for log in ("gone", account.topic_id)
        )
        Publisher(chosen).dead_letter(earlier, dead, group)
        fates.write([Mark(account, [0], Fate.DEAD)])
        assert Publisher(chosen).has_dead_letter(earlier, group)
        assert not Publisher(chosen).has_dead_letter(now, group)
        assert audit(stack, code=1)["lines"][0]["letters_missing"] == [0]
        (found, *_) = json_of(stack, "find", f"{topic}-0-0", code=None)["deliveries"]
        assert (found["fate"], found["last_error"]) == ("dead", None)
        Publisher(chosen).dead_letter(now, dead, group)
        assert Publisher(chosen).has_dead_letter(now, group)
    assert audit(stack)["lines"][0]["letters_missing"] == []


@pytest.mark.slow
def test_the_status_tells_topics_and_bridges_and_that_nothing_is_halted(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", partitions=2)
    first = json_of(stack, "status")
    assert first["bridges"] == {}
    stack.produce("orders", *range(5), partition=1)
    bridge = stack.bridge()
    eventually(lambda: stack.waiting() == 5, 20)
    reported = partial(json_of, stack, "status")
    eventually(lambda: any(state["assigned"] for state in reported()["bridges"].values()), 20)
    found = reported()
    topic = stack.topic("orders")
    assert found["group"] == stack.environ["BRIDGE_GROUP"]
    assert found["halted"] == {}
    at = found["topics"][topic]["1"]
    assert (at["committed"] or 0, at["end"], at["lag"]) == (0, 5, 5)
    (state,) = found["bridges"].values()
    assert [f"{topic}-0", f"{topic}-1"] == [place for place in state["assigned"] if place.startswith(f"{topic}-")]
    assert state["obstacles"] == []
    assert bridge.terminate() == 0
    assert json_of(stack, "status")["bridges"] == {}
