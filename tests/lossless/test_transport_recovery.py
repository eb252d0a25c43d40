"""What the keeper tends: one thing that is wrong keeps nothing else, and every foreign value has an end."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from kombu import Connection

from lossless.transport.event_loop_poller import ConnectionMaker
from lossless.transport.heartbeat import HeartbeatKeeper
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.message_ownership import make_owner
from lossless.transport.storage_layout import TransportKeys, store_message
from lossless.transport.transport_scripts import MOVE_DUE
from tests.lossless.harness import Broker, entry, wait_until

RAW = json.dumps(entry("any", "id")).encode()
HELD = store_message("q", RAW)


@pytest.fixture
def make_keeper(broker: Broker) -> Iterator[Callable[..., HeartbeatKeeper]]:
    keepers: list[HeartbeatKeeper] = []

    def make(dead_after: float = 1.2) -> HeartbeatKeeper:
        client = redis.Redis(port=broker.port, socket_timeout=2, health_check_interval=0)
        keepers.append(HeartbeatKeeper(client, TransportKeys(), dead_after, 0.05))
        return keepers[-1]

    yield make
    for keeper in keepers:
        keeper.close()
        wait_until(lambda keeper=keeper: keeper._thread is None)  # type: ignore[misc]
        keeper.client.close()


def dead_owner(broker: Broker, dead_after: float, **fields: Any) -> str:
    owner = make_owner(dead_after)
    broker.client.hset("_taken", owner, 5)
    broker.client.hset(f"_taken.{owner}", mapping={"@": 1, **fields})
    return owner


def test_a_foreign_field_of_a_dead_owner_is_set_aside_and_stops_nothing(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    owner = dead_owner(broker, 0.6, **{"7": HELD, "odd": "no message", "8": "none either"})
    broker.client.hset("_taken", b"\xff\xfe", b"\xff")
    broker.client.set(f"_taken.{dead_owner(broker, 0.6)}", "no hash", xx=True)
    broker.client.zadd("_waiting.q", {HELD: 1})
    broker.client.sadd("_waiting", "q")
    make_keeper().holder()
    wait_until(lambda: broker.client.llen("q") == 2, what="what was due, and what the dead one held")
    wait_until(lambda: not broker.client.exists(f"_taken.{owner}"))
    assert sorted(broker.client.lrange("_undecodable", 0, -1)) == [b"no message", b"none either"]
    assert "2 values that are none of ours are moved to the list '_undecodable'" in caplog.text


def test_what_waits_and_cannot_be_moved_keeps_nothing_else(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign type where a queue's list or its waiting set should be, and a foreign value among what waits."""
    broker.client.set("taken up", "no list")
    broker.client.set("_waiting.foreign", "no sorted set")
    broker.client.zadd("_waiting.q", {b"foreign": 1, **{store_message("taken up", b"%d" % n): 1 for n in range(600)}})
    broker.client.zadd("_waiting.q", {HELD: 2})
    broker.client.sadd("_waiting", "foreign", "q", "gone")
    make_keeper().holder()
    wait_until(lambda: broker.client.lrange("q", 0, -1) == [RAW])
    wait_until(lambda: broker.client.lrange("_undecodable", 0, -1) == [b"foreign"])
    wait_until(lambda: broker.client.smembers("_waiting") == {b"foreign", b"q"})
    assert broker.client.zcard("_waiting.q") == 600, "they wait until their list can be written"
    assert broker.client.zcount("_waiting.q", time.time() + 30, "+inf") == 600
    assert "cannot be moved: WRONGTYPE" in caplog.text


def test_a_foreign_field_of_a_living_owner_is_set_aside(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper]
) -> None:
    holder = make_keeper().holder()
    holder.compare()
    mine = f"_taken.{holder.owner}"
    broker.client.hset(mine, mapping={"odd": "x", b"\xff": "y", "3": HELD, "4": store_message("q", b"newer")})
    holder.require_comparison()
    holder.compare()
    assert broker.client.lrange("q", 0, -1) == [b"newer", RAW], "the oldest is next to run"
    assert sorted(broker.client.lrange("_undecodable", 0, -1)) == [b"x", b"y"]
    assert broker.client.hkeys(mine) == [b"@"]


def test_a_message_whose_queue_cannot_be_written_stays_held(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper]
) -> None:
    holder = make_keeper().holder()
    holder.compare()
    broker.client.set("taken up", "no list")
    broker.client.hset(f"_taken.{holder.owner}", "3", store_message("taken up", RAW))
    holder.compare()
    assert broker.client.hget(f"_taken.{holder.owner}", "3") == store_message("taken up", RAW)


def test_a_fault_is_said_once(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    broker.client.set("_waiting", "no set")
    keeper = make_keeper()
    with caplog.at_level(logging.WARNING):
        keeper.holder()
        turns = monotonic_turns(keeper, 5)
    assert turns >= 5
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "failed at moving what is due" in caplog.text


def test_a_fault_is_said_once_also_of_a_step_that_most_turns_leave_out(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    """A turn without an attempt counted as a success: a Redis that refused writes made four lines a second."""
    broker.client.set(TransportKeys().idle_queues, "no set")
    keeper = make_keeper()
    attempts: set[float] = set()

    def attempted() -> bool:
        attempts.add(keeper._notifier._apply_at)
        return len(attempts) >= 4

    with caplog.at_level(logging.WARNING):
        keeper.holder()
        wait_until(attempted)
    assert ["standing as notifier" in record.getMessage() for record in caplog.records] == [True]


def monotonic_turns(keeper: HeartbeatKeeper, wanted: int) -> int:
    """Wait until the keeper has made some turns."""
    seen: set[float] = set()

    def turned() -> bool:
        seen.add(keeper._due_at)
        return len(seen) > wanted

    wait_until(turned)
    return len(seen)


def test_a_holder_that_joins_as_the_thread_ends_is_tended(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper]
) -> None:
    keeper = make_keeper(600)
    for _ in range(300):
        holder = keeper.holder()
        settled = threading.Event()
        holder.settle = lambda at_once=False, told=settled: told.set()  # type: ignore[method-assign, misc]
        holder.wake()
        assert settled.wait(5), "nobody tends it"
        keeper.release(holder)
        keeper.wake()


def test_an_owner_is_given_the_time_that_it_says(broker: Broker, make_keeper: Callable[..., HeartbeatKeeper]) -> None:
    """A rolling change of dead_after: the one with the short time takes nothing from the one with the long."""
    patient, hasty = make_keeper(12), make_keeper(0.6)
    living = patient.holder()
    living.compare()
    broker.client.hset(f"_taken.{living.owner}", "1", HELD)
    living.add(1, "q", "q", RAW)
    gone = dead_owner(broker, 0.6, **{"2": HELD})
    hasty.holder().compare()
    wait_until(lambda: not broker.client.exists(f"_taken.{gone}"))
    assert broker.client.hexists(f"_taken.{living.owner}", "1")
    gone = dead_owner(broker, 0.6, **{"2": HELD})
    wait_until(lambda: not broker.client.exists(f"_taken.{gone}"), what="by now the living one has not beaten for 1 s")
    assert broker.client.hexists(f"_taken.{living.owner}", "1")


def test_an_owner_of_a_version_that_says_no_time_is_given_the_default(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper]
) -> None:
    broker.client.hset("_taken", "of-an-old-version", 5)
    broker.client.hset("_taken.of-an-old-version", mapping={"@": 1, "2": HELD})
    gone = dead_owner(broker, 0.6, **{"2": HELD})
    make_keeper(0.6).holder()
    wait_until(lambda: not broker.client.exists(f"_taken.{gone}"))
    assert broker.client.exists("_taken.of-an-old-version")


def test_what_an_orphan_holds_without_having_heard_of_it_goes_back(
    broker: Broker, make_keeper: Callable[..., HeartbeatKeeper]
) -> None:
    """Its channel is closed, and the answer to its last take was lost."""
    keeper = make_keeper()
    holder = keeper.holder()
    holder.compare()
    broker.client.hset(f"_taken.{holder.owner}", "1", HELD)
    holder.require_comparison()
    keeper.release(holder)
    wait_until(lambda: broker.client.lrange("q", 0, -1) == [RAW])
    wait_until(lambda: not broker.client.hexists("_taken", holder.owner))


def test_messages_of_a_cancelled_queue_go_back_in_their_order(broker: Broker) -> None:
    with Connection(broker.url) as connection:
        channel: Any = connection.channel()
        holder: MessageHolder = channel._hold()
        holder.compare()
        for number in (1, 2, 3):
            raw = json.dumps(entry("any", str(number))).encode()
            broker.client.hset(f"_taken.{holder.owner}", str(number), store_message("q", raw))
            channel.taker.arrivals.come("q", "q", raw, number, time.time())
        channel.deliver()
        wait_until(lambda: broker.client.llen("q") == 3)
        ids = [json.loads(raw)["headers"]["id"] for raw in reversed(broker.client.lrange("q", 0, -1))]
        assert ids == ["1", "2", "3"]


def test_the_scripts_go_on_where_a_script_before_made_no_progress(broker: Broker) -> None:
    broker.client.set("taken up", "no list")
    broker.client.zadd("_waiting.q", {store_message("taken up", RAW): 1})
    broker.client.sadd("_waiting", "q")
    moved, *wrong = broker.client.eval(MOVE_DUE.text, 2, "_waiting", "_undecodable", "_waiting.", 1)
    assert moved == 0
    assert b"taken up" not in wrong[0]
    assert b"_waiting.q: what is due cannot be moved" in wrong[0]


def test_a_look_for_what_is_due_costs_one_command_while_nothing_waits(broker: Broker) -> None:
    """All workers together look ten times a second."""
    keys: list[Any] = ["_waiting", "_undecodable"]
    MOVE_DUE.run(broker.client, keys, ["_waiting.", 1])
    broker.client.config_resetstat()
    assert MOVE_DUE.run(broker.client, keys, ["_waiting.", 1]) == [0]
    ran = {name.removeprefix("cmdstat_"): each["calls"] for name, each in broker.client.info("commandstats").items()}
    assert {name: calls for name, calls in ran.items() if not name.startswith(("config", "info"))} == {
        "evalsha": 1,
        "smembers": 1,
    }


def test_an_ack_whose_take_found_no_connection_is_not_forgotten(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise redis.ConnectionError("refused")

    with Connection(broker.url) as connection:
        channel: Any = connection.channel()
        holder: MessageHolder = channel._hold()
        holder.compare()
        broker.client.hset(f"_taken.{holder.owner}", "1", HELD)
        tag = holder.add(1, "q", "q", RAW)
        holder.send_acks_with_takes()
        holder.ack(tag)
        monkeypatch.setattr(ConnectionMaker, "make", refused)
        with pytest.raises(redis.ConnectionError):
            channel.taker.turn()
        holder.settle()
        assert not broker.client.hexists(f"_taken.{holder.owner}", "1")
        assert not holder.tags
