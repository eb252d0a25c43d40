"""How each fault of the schedule is done: a function a kind, which returns when the fault is over.

What it returns says more of it: which processes it killed or froze. None says that it could not be done.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import redis
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.chaos.load import KEYS
from tests.chaos.schedule import Fault
from tests.chaos.topics import TOPICS
from tests.chaos.world import HaltTime, World, signal_all
from tests.processes import Process, Served
from tests.project_process import children


class Done(NamedTuple):
    """What a fault did beside its kind: the processes that it killed or froze, and words for people."""

    pids: frozenset[int] = frozenset()
    words: str = ""


#: The exit code of a command that decides, where neither Kafka nor Redis has taken it.
NOT_DONE: Final = 2
#: Most seconds that a wrong clock is fast or slow.
SKEW: Final = 10.0
W = TypeVar("W", bound=World)
ActIn = Callable[[W, Fault], Done | None]
Act = ActIn[World]


def pids(process: Served) -> frozenset[int]:
    with suppress(OSError):
        return frozenset({process.pid, *children(process)})
    return frozenset({process.pid})


# Bridges and workers


def member_killed(world: World, fault: Fault) -> Done | None:
    if (process := world.alive(fault.lane)) is None:
        return None
    clock = round((fault.draw - 0.5) * 2 * SKEW, 1) if "clock" in fault.kind else 0.0
    done = Done(pids(process), f"its clock is {clock:+g} s" if clock else "")
    process.kill()
    world.start_member(fault.lane, clock)
    return done


def member_stopped(world: World, fault: Fault) -> Done | None:
    if (process := world.alive(fault.lane)) is None:
        return None
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    while process.exit_code is None and time.monotonic() - begun < 40:
        time.sleep(0.1)
    took, code = time.monotonic() - begun, process.exit_code
    process.kill()
    world.start_member(fault.lane)
    return Done(words=f"ended with {code} after {took:.1f} s")


def member_frozen(world: World, fault: Fault) -> Done | None:
    if (process := world.alive(fault.lane)) is None:
        return None
    done = Done(pids(process))
    signal_all(process, signal.SIGSTOP)
    time.sleep(fault.lasts)
    signal_all(process, signal.SIGCONT)
    return done


def parent_killed(world: World, fault: Fault) -> Done | None:
    if (process := world.alive(fault.lane)) is None:
        return None
    done = Done(pids(process))
    os.kill(process.pid, signal.SIGKILL)
    process.ends()
    world.start_member(fault.lane)
    return done


def parent_frozen(world: World, fault: Fault) -> Done | None:
    if (process := world.alive(fault.lane)) is None:
        return None
    done = Done(pids(process))
    process.signal(signal.SIGSTOP)
    time.sleep(fault.lasts)
    process.signal(signal.SIGCONT)
    return done


def child_killed(world: World, fault: Fault) -> Done | None:
    if (process := world.alive(fault.lane)) is None or not (found := sorted(children(process))):
        return None
    child = found[int(fault.draw * len(found))]
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return Done(frozenset({child}))


def member_joins(world: World, fault: Fault) -> Done:
    process = world.bridge(wait=False)
    time.sleep(fault.lasts)
    if "dies" in fault.kind:
        process.kill()
        return Done()
    with suppress(ProcessLookupError):
        process.signal(signal.SIGTERM)
    return Done(words=f"ended with {process.ends(40)}")


# Redis


def redis_killed(world: World, fault: Fault) -> Done:
    master = world.pair.master
    master.kill()
    time.sleep(fault.lasts)
    master.start()
    return Done()


def redis_stopped(world: World, fault: Fault) -> Done:
    master = world.pair.master
    master.stop()
    time.sleep(fault.lasts)
    master.start()
    return Done()


def redis_frozen(world: World, fault: Fault) -> Done:
    master = world.pair.master
    master.freeze()
    time.sleep(fault.lasts)
    master.thaw()
    return Done()


def redis_connections_cut(world: World, fault: Fault) -> Done:
    with world.direct() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    return Done()


def redis_out_of_memory(world: World, fault: Fault) -> Done:
    with world.direct() as client:
        client.config_set("maxmemory", 1)
        time.sleep(fault.lasts)
        client.config_set("maxmemory", 0)
    return Done()


def redis_paused(world: World, fault: Fault) -> Done:
    with world.direct() as client:
        client.client_pause(int(fault.lasts * 1000), all=fault.draw < 0.5)
        time.sleep(fault.lasts)
    return Done()


def redis_fails_over(world: World, fault: Fault) -> Done | None:
    """The replica becomes the master behind the same address; the old one is dead, or becomes its replica alive."""
    pair, dies = world.pair, fault.draw < 0.5
    if not _replicated(world):
        return None
    if dies:
        pair.master.kill()
    pair.servers.reverse()
    with world.direct() as client:
        client.replicaof("NO", "ONE")
    world.network.order("redis", "target", pair.master.port)
    if dies:
        pair.replica.start()
    pair.follow()
    return Done(words="the old one died" if dies else "the old one lives")


def _replicated(world: World) -> bool:
    deadline = time.monotonic() + 10
    with world.pair.replica.client() as client:
        while time.monotonic() < deadline:
            with suppress(redis.RedisError):
                if client.info("replication").get("master_link_status") == "up":
                    return True
            time.sleep(0.1)
    return False


def redis_goes_back(world: World, fault: Fault) -> Done | None:
    """What it wrote in the last seconds is not there, as after a disk that lost its cache."""
    master = world.pair.master
    master.kill()
    wanted = time.time() - fault.lasts
    there = [each for each in world.pair.lengths if each.at <= wanted and master.folder in each.file.parents]
    newest = max((master.folder / "appendonlydir").glob("*.incr.aof"), key=lambda each: each.stat().st_mtime)
    if there and there[-1].file == newest:
        os.truncate(newest, there[-1].length)
    master.start()
    return Done(words=f"{fault.lasts:.1f} s") if there and there[-1].file == newest else None


def redis_wiped(world: World, fault: Fault) -> Done:
    master = world.pair.master
    if fault.draw < 0.5:
        with world.direct() as client:
            client.flushall()
        return Done(words="by FLUSHALL")
    master.kill()
    shutil.rmtree(master.folder / "appendonlydir")
    master.start()
    return Done(words="its file is gone")


# Kafka


def kafka_killed(world: World, fault: Fault) -> Done:
    world.server.kill()
    time.sleep(fault.lasts)
    world.server.start()
    return Done()


def kafka_frozen(world: World, fault: Fault) -> Done:
    world.server.freeze()
    time.sleep(fault.lasts)
    world.server.thaw()
    return Done()


def kafka_log_goes_back(world: World, fault: Fault) -> Done:
    """The last records of a partition of `cut` are gone."""
    topic, partition = world.topic("cut"), int(fault.draw * TOPICS["cut"].partitions)
    reader = Consumer({"bootstrap.servers": world.kafka, "group.id": "nobody", "log_level": 0})
    low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    reader.close()
    world.server.kill()
    offset = max(low, high - 1 - int(fault.draw * 1000) % 30)
    world.server.cut(topic, offset, partition)
    world.server.start()
    return Done(words=f"cut-{partition} from {offset} on, of {high}")


def topic_made_again(world: World, fault: Fault) -> Done:
    """`again` is deleted, and made again a moment later."""
    admin, name = AdminClient({"bootstrap.servers": world.kafka, "log_level": 0}), world.topic("again")
    (deleted,) = admin.delete_topics([name]).values()
    with suppress(KafkaException):
        deleted.result(30)
    time.sleep(fault.lasts)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        (made,) = admin.create_topics([NewTopic(name, TOPICS["again"].partitions, 1)]).values()
        with suppress(KafkaException):
            made.result(30)
            return Done()
        time.sleep(0.2)
    raise AssertionError(f"{name} could not be made again")


def dead_letters_refused(setting: str, value: str) -> Act:
    """All dead-letter topics get a setting for a while with which they take nothing."""

    def act(world: World, fault: Fault) -> Done | None:
        admin = AdminClient({"bootstrap.servers": world.kafka, "log_level": 0})
        there = admin.list_topics(timeout=20).topics
        names = [name for each in world.topics if (name := world.topic(f"{each}.dlq")) in there]
        if not names:
            return None
        before = {name: _setting(admin, name, setting) for name in names}
        _set(admin, dict.fromkeys(names, (setting, value)))
        time.sleep(fault.lasts)
        _set(admin, {name: (setting, old) for name, old in before.items()})
        return Done(words=f"{len(names)} topics")

    return act


def _setting(admin: AdminClient, topic: str, name: str) -> str:
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(found.result(20)[name].value)


def _set(admin: AdminClient, wanted: Mapping[str, tuple[str, str]]) -> None:
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)],
        )
        for topic, (name, value) in wanted.items()
    ]
    _wait(admin.incremental_alter_configs(resources).values())


def _wait(futures: Iterable[Any]) -> None:
    for future in futures:
        future.result(30)


# People


def halted(world: World, fault: Fault) -> Done | None:
    """A topic is halted by hand, and resumed, again and again until Kafka has it."""
    name = sorted(TOPICS)[int(fault.draw * len(TOPICS))]
    code = decide(world, "halt", world.topic(name))
    if code != NOT_DONE:
        time.sleep(fault.lasts)
    # Also where it is said that nobody has it: what was sent to Kafka may be there, or get there.
    assert decide(world, "resume", world.topic(name), tries=20) == 0, f"{name} stays halted"
    return None if code == NOT_DONE else Done(words=f"{name}{', in Redis alone' if code else ''}")


def halt_some(world: World, fault: Fault) -> Done | None:
    """A handler or a key of it is halted by hand, and resumed, again and again until Kafka has it."""
    names = [(name, handler) for name, topic in world.topics.items() for handler in topic.handlers]
    if by_key := "key" in fault.kind:
        names = [(name, handler) for name, handler in names if world.topics[name].ordered != "partition"]
    topic, handler = names[int(fault.draw * len(names))]
    scope: tuple[str, ...] = (world.topic(topic), "--handler", handler)
    if by_key:
        scope = (*scope, "--key", str(int(fault.draw * 1000) % KEYS))
    code = decide(world, "halt", *scope)
    begun = time.time()
    if code != NOT_DONE:
        time.sleep(fault.lasts)
    if code == 0:
        key = str(int(fault.draw * 1000) % KEYS).encode() if by_key else None
        world.halts.append(HaltTime(handler, key, begun, time.time()))
    assert decide(world, "resume", *scope, tries=20) == 0, f"{scope} stays halted"
    return None if code == NOT_DONE else Done(words=" ".join(scope[1:]))


def policy_changed(world: World, fault: Fault) -> Done | None:
    """A handler retries once more than its code says, for a while."""
    names = [name for topic in TOPICS.values() for name in topic.handlers]
    name = names[int(fault.draw * len(names))]
    code = decide(world, "policy", "set", name, "retry_delays=(0.3,0.5,0.8,1)")
    if code != NOT_DONE:
        time.sleep(fault.lasts)
    assert decide(world, "policy", "unset", name, tries=20) == 0, f"{name}'s policy stays changed"
    return None if code == NOT_DONE else Done(words=f"{name}{', in Redis alone' if code else ''}")


def decide(world: World, *words: str, tries: int = 1) -> int:
    """Decide, as often as it takes until Kafka has it; the code of the last try."""
    code = NOT_DONE
    for _ in range(tries):
        process: Process = world.start("command", sys.executable, "-m", "bridge", *words, "--why", "chaos")
        if (code := process.ends(60)) == 0:
            break
    return code


def bank_away(world: World, fault: Fault) -> Done:
    """What the handler `needs` needs fails each time."""
    away = world.folder / "book.away"
    away.touch()
    time.sleep(fault.lasts)
    away.unlink()
    return Done()


# The network


def link_cut(world: World, fault: Fault) -> Done:
    world.network.order(_link(fault), "cut")
    return Done()


def link(word: str, least: float = 0.0, most: float = 0.0) -> Act:
    """The link refuses, is silent, slow or narrow for a while; the number lies between `least` and `most`."""

    def act(world: World, fault: Fault) -> Done:
        number = least + fault.draw * (most - least)
        world.network.order(_link(fault), word, number)
        time.sleep(fault.lasts)
        world.network.order(_link(fault), "heal")
        return Done(words=f"{number:g}" if number else "")

    return act


def _link(fault: Fault) -> str:
    return fault.lane.rpartition(" ")[2]


ACTS: Final[Mapping[tuple[str, str], Act]] = {
    ("bridge", "killed"): member_killed,
    ("bridge", "killed, and its clock is wrong"): member_killed,
    ("worker", "killed, and its clock is wrong"): member_killed,
    ("bridge", "told to stop"): member_stopped,
    ("bridge", "frozen"): member_frozen,
    ("worker", "killed"): member_killed,
    ("worker", "parent killed"): parent_killed,
    ("worker", "child killed"): child_killed,
    ("worker", "told to stop"): member_stopped,
    ("worker", "frozen"): member_frozen,
    ("worker", "parent frozen"): parent_frozen,
    ("group", "a member joins and leaves"): member_joins,
    ("group", "a member joins and dies"): member_joins,
    ("people", "policy set and unset"): policy_changed,
    ("dependency", "away"): bank_away,
    ("people", "halt and resume"): halted,
    ("people", "halt a handler"): halt_some,
    ("people", "halt a key"): halt_some,
    ("redis", "killed"): redis_killed,
    ("redis", "told to stop"): redis_stopped,
    ("redis", "frozen"): redis_frozen,
    ("redis", "connections cut"): redis_connections_cut,
    ("redis", "out of memory"): redis_out_of_memory,
    ("redis", "paused"): redis_paused,
    ("redis", "fails over"): redis_fails_over,
    ("redis", "goes back"): redis_goes_back,
    ("redis", "wiped"): redis_wiped,
    ("kafka", "killed"): kafka_killed,
    ("kafka", "frozen"): kafka_frozen,
    ("kafka", "log goes back"): kafka_log_goes_back,
    ("kafka", "topic made again"): topic_made_again,
    ("kafka", "dead letters too large"): dead_letters_refused("max.message.bytes", "1"),
    ("kafka", "dead letters without replicas"): dead_letters_refused("min.insync.replicas", "2"),
    ("link", "cut"): link_cut,
    ("link", "refused"): link("refuse"),
    ("link", "silent"): link("silent"),
    ("link", "slow"): link("slow", 0.01, 0.1),
    ("link", "narrow"): link("narrow", 100_000, 1_000_000),
}


def act(world: World, fault: Fault) -> Done | None:
    """Do a fault, to its end."""
    return ACTS[fault.lane.split()[0], fault.kind](world, fault)
