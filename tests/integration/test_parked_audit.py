"""What is parked lies somewhere: the audit looks for it, and find names the record."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from bridge.formats.delivery import Attempts, Delivery, Message
from bridge.formats.failure import Failure
from bridge.formats.retry_record import retry_headers
from bridge.ledger import RETRY_RECORD, Account, Accounts, Fate, Ledger, LogHistory, Mark
from tests.delivery_checks import audit, choose, command, delete_topic, end, json_in, json_of, ledger, twice
from tests.processes import Stack, eventually

TIER = "orders.retry.5m"
FAILURE = Failure("builtins.ConnectionError", "the bank is away", "", 1_700_000_000_000)


def delivery(account: Account, offset: int, **changes: Any) -> Delivery:
    message = Message(account.topic, account.partition, offset, origin=f"c g {account.topic_id}")
    given = {"number": 1, "runs": 3, "attempts": Attempts(failed=2, lost=1), "error": str(FAILURE), **changes}
    return Delivery(message, account.handler, **given)


def park(stack: Stack, account: Account, offsets: Sequence[int], due: float, group: str = "", tier: str = TIER) -> None:
    """Write the records of deliveries to a retry topic."""
    for offset in offsets:
        said = retry_headers(
            delivery(account, offset), group or stack.environ["BRIDGE_GROUP"], due=int(due * 1000), failure=FAILURE
        )
        stack.produce(tier, b"{}", headers=said)


def own(stack: Stack, fates: Ledger, tier: str = TIER) -> Account:
    """Where the records of a tier have their own fates."""
    with ledger(stack, tier) as (_, account):
        return Account(RETRY_RECORD, account.topic, LogHistory(fates).log_id(account.topic, account.topic_id, 0), 0)


def lines(stack: Stack, code: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The audit's only line, and its only tier."""
    found = audit(stack, code=code)
    (line,) = found["lines"]
    return line, {tier["topic"]: tier for tier in found["tiers"]}[stack.topic(TIER)]


@pytest.mark.slow
def test_what_is_parked_is_counted_by_tier_and_found_where_it_lies(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", TIER)
    stack.produce("orders", *range(6))
    due = time.time() + 300
    with ledger(stack, "orders") as (fates, account):
        park(stack, account, range(4), due)
        # Another group's lies there too, and is none of ours.
        park(stack, account, [4, 5], due, group="another")
        fates.write([Mark(account, range(4), Fate.PARKED)])
        fates.write([Mark(own(stack, fates), [1], Fate.HANDED), Mark(own(stack, fates), [2], Fate.DONE)])
        fates.write([Mark(account, [2], Fate.DONE)])
    line, tier = lines(stack)
    assert (line["parked"], line["done"], line["unaccounted"], line["parked_nowhere"]) == (3, 1, 0, [])
    assert (tier["kind"], tier["delay"]) == ("retry", 300)
    assert (tier["parked"], tier["handed"], tier["unaccounted"]) == (2, 1, 0)
    assert f"{stack.topic(TIER)}: 2 records wait there, 300 s; 1 of it is handed off" in command(
        stack, "audit", stack.topic("orders")
    )

    status = json_of(stack, "status")
    shown = {each["topic"]: each for each in status["parked"]}[stack.topic(TIER)]
    assert (shown["source"], shown["delay"], shown["records"]) == (stack.topic("orders"), 300, 6)
    assert abs(datetime.fromisoformat(shown["next_due"]).timestamp() - due) < 2
    assert (shown["late_seconds"], shown["use"]) == (0.0, "at need")

    (found,) = json_of(stack, "find", f"{stack.topic('orders')}-0-3")["deliveries"]
    assert found["where"].startswith(f"{stack.topic(TIER)}-0-3, waits until 20")
    assert (found["fate"], found["since"]) == ("parked", "2023-11-14T22:13:20.000+00:00")
    assert found["until"] in found["where"]
    assert found["attempts"] == {"failed": 2, "lost": 1, "postponed": 0, "replayed": 0}
    assert found["last_error"] == "builtins.ConnectionError: the bank is away"
    (found,) = json_of(stack, "find", f"{stack.topic('orders')}-0-1")["deliveries"]
    assert found["where"].endswith(f"(by {stack.topic(TIER)}-0-1)")
    assert "in no message of" in found["where"]


@pytest.mark.slow
def test_what_is_parked_and_lies_nowhere_is_unaccounted_for(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", TIER)
    stack.produce("orders", *range(6))
    with ledger(stack, "orders") as (fates, account):
        park(stack, account, range(3), time.time() + 300)
        park(stack, account, [3], time.time() + 300, group="another")
        fates.write([Mark(account, range(5), Fate.PARKED)])
        # Its run was over, and its origin was not told.
        fates.write([Mark(own(stack, fates), [2], Fate.DONE)])
        line, tier = lines(stack, code=1)
        assert (line["unaccounted"], line["parked_nowhere"]) == (3, [2, 3, 4])
        assert (tier["parked"], tier["unaccounted"]) == (2, 0)
        said = command(stack, "audit", stack.topic("orders"), code=1)
        assert "parked, but in no retry topic: 2, 3, 4" in said
        (found,) = json_of(stack, "find", f"{stack.topic('orders')}-0-4")["deliveries"]
        assert "in no retry topic" in found["where"]
        fates.write([Mark(account, [2, 3, 4], Fate.DONE)])
        line, _ = lines(stack)
        assert line["unaccounted"] == 0


@pytest.mark.slow
def test_a_record_of_a_retry_topic_that_is_committed_and_was_never_handed_off_is_unaccounted_for(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders", TIER)
    stack.produce("orders", *range(3))
    with ledger(stack, "orders") as (fates, account):
        park(stack, account, range(3), time.time() + 300)
        fates.write([Mark(account, range(3), Fate.PARKED)])
        there = own(stack, fates)
        Accounts(fates).join(there, 0)
        fates.write([Mark(there, [0], Fate.HANDED), Mark(there, [2], Fate.DISCARDED)])
        assert f"is the retry topic of '{stack.topic('orders')}'" in command(
            stack, "reset", stack.topic(TIER), "--to", "latest", code=1
        )
        with stack._reader(stack.environ["BRIDGE_GROUP"]) as reader:
            reader.commit(offsets=[TopicPartition(stack.topic(TIER), 0, 3)], asynchronous=False)
        line, tier = lines(stack, code=1)
    # What is handed off may be committed before it is settled; what is open would never be read again.
    assert (tier["handed"], tier["parked"], tier["unaccounted"]) == (1, 0, 1)
    assert line["parked_nowhere"] == [1, 2]


@pytest.mark.slow
def test_what_a_worker_parked_is_found_counted_and_shown_until_it_has_run(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}}, kafka_park_after=1, kafka_retry_tiers=(1, 4))
    stack.environ |= {"HANDLERS": "tests.handlers.simple", "TEST_DELAY": "4"}
    stack.make_topics("orders")
    bridge, _ = stack.bridge(wait=False), stack.worker()
    (failing,) = stack.produce("orders", {"fail": True})

    def where() -> Any:
        (found,) = json_of(stack, "find", failing)["deliveries"]
        return found if found["fate"] == "parked" and "waits until" in found["where"] else None

    found = eventually(where, 30)
    assert f"{stack.topic('orders.retry.4s')}-0-" in found["where"]
    assert found["attempts"]["failed"] in (1, 2)
    assert "ConnectionError: always" in found["last_error"]
    (line,) = audit(stack)["lines"]
    assert (line["unaccounted"], line["parked_nowhere"]) == (0, [])
    labels = {"topic": stack.topic("orders"), "tier": stack.topic("orders.retry.4s")}
    stack.dead("orders", 1)
    assert audit(stack)["dead"] == 1
    eventually(lambda: bridge.metric("bridge_parked_records", **labels) == 0, 20)
    assert json_of(stack, "status")["parked"]


def gone(stack: Stack) -> list[str]:
    """What status says of topics that were deleted."""
    return [words for words in json_of(stack, "status")["problems"] if "was deleted" in words]


@pytest.mark.slow
@pytest.mark.parametrize("needed", [False, True], ids=["a tier at need", "a tier that a bridge makes again"])
def test_a_retry_topic_that_is_deleted_while_no_bridge_runs_is_told_by_status_and_by_the_next_bridge(
    stack: Stack, needed: bool
):
    choose(stack, {"orders": {"commit": "completion"}}, kafka_retry_tiers=(300,) if needed else (60, 300))
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.environ["TEST_DELAY"] = "300" if needed else "0.2"
    handler = "tests.handlers.simple.work"
    stack.make_topics("orders", TIER, "orders.retry.1m")
    bridge = stack.bridge()
    stack.produce("orders", *range(5))
    eventually(lambda: stack.committed("orders") == 0 and stack.waiting() == 5, 20)
    source, tier = stack.topic("orders"), stack.topic(TIER)
    with ledger(stack, "orders") as (fates, there):
        account = there._replace(handler=handler)
        park(stack, account, range(3), time.time() + 300)
        park(stack, account, [3], time.time() + 300, tier="orders.retry.1m")
        eventually(lambda: bridge.metric("bridge_parked_records", topic=source, tier=tier) == 3, 30)
        fates.write([Mark(account, range(4), Fate.PARKED)])
    bridge.kill()
    assert gone(stack) == []
    delete_topic(stack, TIER)
    (told,) = eventually(lambda: gone(stack), 20)
    assert told.startswith(repr(tier))
    assert f"at least 3 deliveries of {source!r} are parked and in no retry topic (parked: {handler} (4))" in told
    bridge = stack.bridge()
    bridge.says(
        f"topic {tier!r} was deleted: of the parked deliveries of {source!r} at least 3 are in no retry topic", 90
    )
    assert len(gone(stack)) == 1
    with ledger(stack, "orders") as (fates, there):
        fates.write([Mark(there._replace(handler=handler), range(3), Fate.DONE)])
    assert gone(stack) == []


@pytest.mark.slow
@pytest.mark.parametrize("refresh", [None, 100], ids=["the bridge sees it", "Kafka's client sees it first"])
def test_a_retry_topic_that_is_deleted_with_what_waits_in_it_is_told_until_somebody_has_looked(
    stack: Stack, refresh: int | None
):
    choose(stack, {"orders": {"commit": "completion"}})
    if refresh is not None:
        stack.environ["KAFKA_TOPIC_METADATA_REFRESH_INTERVAL_MS"] = str(refresh)
    stack.make_topics("orders", TIER)
    bridge = stack.bridge()
    with ledger(stack, "orders") as (_, account):
        park(stack, account, range(3), time.time() + 300)
    source, tier = stack.topic("orders"), stack.topic(TIER)
    eventually(lambda: bridge.metric("bridge_parked_records", topic=source, tier=tier) == 3, 30)
    delete_topic(stack, TIER)
    eventually(lambda: bridge.metric("bridge_log_changes_total", topic=tier, what="deleted") == 1, 30)
    (told,) = [words for words in json_of(stack, "status")["problems"] if "was deleted" in words]
    assert told.startswith(repr(tier))
    assert "up to 3 records" in told
    assert f"`bridge audit {source}`" in told


@pytest.mark.slow
def test_what_a_deleted_retry_topic_has_handed_off_is_on_its_way_and_not_lost(stack: Stack):
    """With commit="handoff" its record is committed, and its origin parked, until a worker has run it."""
    choose(stack, {}, kafka_retry_tiers=(60,))
    tier = "orders.retry.1s"
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.make_topics("orders", tier)
    stack.produce("orders", *range(3))
    eventually(lambda: end(stack, "orders") == 3)
    with ledger(stack, "orders") as (fates, there):
        account = there._replace(handler="tests.handlers.simple.work")
        # Of the last no record is left anywhere.
        fates.write([Mark(account, range(3), Fate.PARKED)])
        park(stack, account, range(2), time.time(), tier=tier)
        bridge = stack.bridge()
        eventually(lambda: stack.committed(tier) == 2, 30)
        bridge.terminate()
        printed = command(stack, "topics", "--json", code=None)
        listed = {each["topic"]: each for each in json_in(printed)}
        assert (listed[stack.topic(tier)]["use"], listed[stack.topic(tier)]["left"]) == ("drained", 2)
        shown = {each["topic"]: each for each in json_of(stack, "status")["parked"]}
        assert shown[stack.topic(tier)]["records"] == 2

        delete_topic(stack, tier)
        (told,) = eventually(lambda: gone(stack), 20)
        assert "at least 1 delivery of" in told
        (line,) = audit(stack, code=1)["lines"]
        assert (line["parked"], line["unaccounted"], line["parked_nowhere"]) == (3, 1, [2])
        (found,) = json_of(stack, "find", f"{stack.topic('orders')}-0-1")["deliveries"]
        assert "in no retry topic" not in found["where"]

        fates.write([Mark(account, [2], Fate.DONE)])
        stack.worker(wait=False)
        eventually(lambda: len(stack.done()) == 2, 30)
        assert gone(stack) == []
        assert audit(stack)["unaccounted"] == 0
    assert twice(stack) == {}
