"""All that the chaos suite runs, and breaks: a Kafka, a Redis with a replica, the network, bridges and workers."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis

from tests.chaos.network import Network
from tests.chaos.schedule import DEAD_AFTER, LANES
from tests.chaos.topics import LIMIT, OUT, TOPICS, Topic
from tests.delivery_checks import choose
from tests.processes import ROOT, Process, Served, Stack
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

#: The newest version before this one whose workers may stand beside the new ones.
OLD: Final = "300721a"
MEMBERS: Final = tuple(name for name in LANES if name.startswith(("bridge", "worker")))
SETTINGS: Final[dict[str, Any]] = {
    "broker_transport_options": {"dead_after": DEAD_AFTER, "socket_timeout": 3, "socket_connect_timeout": 2},
    "kafka_stuck_after": 5,
    "lost_pauses": (0.2, 0.5),
}
#: What a member's log says when it takes part, and how many seconds it has for that before something befalls it.
READY: Final = re.compile(r" ready\.| assigned: ")
READY_WITHIN: Final = 10.0
#: Those that the old version does not know.
NEW_SETTINGS: Final[dict[str, Any]] = {"kafka_park_after": 1, "kafka_retry_tiers": (1, 2, 3, 5)}


class AppendOnly(NamedTuple):
    """How long the append-only file of a Redis was at a time."""

    at: float
    file: Path
    length: int


class HaltTime(NamedTuple):
    """A handler, or a key of it, and from when to when (Unix time) it was halted for certain."""

    handler: str
    key: bytes | None
    begun: float
    ended: float


@dataclass
class Pair:
    """Two Redis, of which one is the master, and how long its file was in the last seconds."""

    servers: list[RedisServer]
    lengths: list[AppendOnly] = field(default_factory=list)

    @property
    def master(self) -> RedisServer:
        return self.servers[0]

    @property
    def replica(self) -> RedisServer:
        return self.servers[1]

    def follow(self) -> None:
        """Have the second replicate the first."""
        with self.replica.client() as client:
            client.replicaof("127.0.0.1", str(self.master.port))

    def measure(self) -> None:
        """Note how long the master's file is now."""
        with suppress(OSError, ValueError):
            file = max((self.master.folder / "appendonlydir").glob("*.incr.aof"), key=lambda each: each.stat().st_mtime)
            self.lengths.append(AppendOnly(time.time(), file, file.stat().st_size))
            del self.lengths[:-200]


class World(Stack):
    """The processes of the chaos suite on servers of their own, by a network of their own.

    Parameters:
        topics: without their prefix.
        handlers: the module of theirs.

    Attributes:
        members: bridges and workers by the name of their lane.
        exits: what ended without being told or killed, which nothing here may.
        old: where the files of an old version are; members start with it, and are upgraded as they are started again.
        of_old: the members that are of the old version.
        halts: the handlers and keys that were halted.
    """

    def __init__(
        self,
        kafka: KafkaServer,
        pair: Pair,
        network: Network,
        prefix: str,
        folder: Path,
        *,
        topics: Mapping[str, Topic] = TOPICS,
        handlers: str = "tests.handlers.load",
    ) -> None:
        broker = f"redis://127.0.0.1:{network.ports['redis']}/0"
        super().__init__(f"127.0.0.1:{network.ports['kafka']}", broker, prefix, folder, "")
        # The test itself looks from beside the network.
        self.kafka, self.server, self.pair, self.network = kafka.bootstrap_servers, kafka, pair, network
        self.book = folder / "book"
        self.book.touch()
        self.topics = topics
        choose(self, {name: {**topic.options} for name, topic in topics.items()}, **SETTINGS, **NEW_SETTINGS)
        self.environ |= {
            "HANDLERS": handlers,
            "BOOK": str(self.book),
            "CHAOS_LIMIT": json.dumps({**LIMIT}),
            # What has a clock of its own needs it before anything asks for the time.
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'chaos' / 'clock'}",
            "KAFKA_RECONNECT_BACKOFF_MAX_MS": "1000",
        }
        self.members: dict[str, Served] = {}
        self.exits: list[str] = []
        self.old: Path | None = None
        self.of_old: set[str] = set()
        self.halts: list[HaltTime] = []
        self.ending = threading.Event()

    def start_member(self, name: str, clock: float = 0.0) -> None:
        """Start a bridge or a worker in the place of this name, in place of an old one a new one.

        Parameters:
            clock: seconds by which its clock is fast.
        """
        start = self.bridge if name.startswith("bridge") else self.worker
        environ: dict[str, Any] = {"CHAOS_CLOCK": str(clock)} if clock else {}
        if self.old and self._still_old(name):
            environ |= {"cwd": self.old, "TEST_SETTINGS": json.dumps(SETTINGS)}
            self.of_old.add(name)
        else:
            self.of_old.discard(name)
        self.members[name] = start(wait=False, **environ)

    def _still_old(self, name: str) -> bool:
        """As docs/how-to/upgrade.md has it: workers first, and bridges when there are no old workers any more."""
        if name.startswith("worker"):
            return name not in self.members
        if self.environ.get("KAFKA_GROUP_PROTOCOL") == "consumer":
            # The old version has settings that librdkafka refuses with it, and Kafka moves no group that has members.
            return False
        return name not in self.members or any(each.startswith("worker") for each in self.of_old)

    def alive(self, name: str) -> Served | None:
        """The process in a place; none, and a new one, if it has ended of itself.

        One that has just begun has some seconds to get ready, lest a slow machine do nothing but start processes.
        """
        process = self.members[name]
        deadline = time.monotonic() + READY_WITHIN
        while process.exit_code is None and not READY.search(process.text) and time.monotonic() < deadline:
            time.sleep(0.1)
        if process.exit_code is None:
            return process
        self.exits.append(f"{process.log.name}: {process.exit_code}")
        self.start_member(name)
        return None

    def make_sources(self) -> None:
        """Make the topics."""
        for name, topic in self.topics.items():
            self.make_topics(name, partitions=topic.partitions)

    def direct(self) -> "redis.Redis":
        """A client of the master, beside the network."""
        return self.pair.master.client()

    def watch(self) -> None:
        """Note how long the append-only file is, four times a second."""
        while not self.ending.wait(0.25):
            self.pair.measure()


@contextmanager
def world(prefix: str, folder: Path) -> Iterator[World]:
    """Servers, network and topics; no bridge and no worker yet."""
    with ExitStack() as block:
        kafka, pair, network = servers(block)
        made = block.enter_context(World(kafka, pair, network, prefix, folder))
        made.make_sources()
        made.make_topics(OUT, partitions=2)
        watched(block, made)
        yield made


def servers(block: ExitStack, **others: int) -> tuple[KafkaServer, Pair, Network]:
    """A Kafka and two Redis, and the network before them and before the ports of others."""
    quick = {"appendfsync": "everysec", "repl_diskless_sync_delay": "0", "auto_aof_rewrite_percentage": "0"}
    pair = Pair([block.enter_context(RedisServer(**quick)) for _ in range(2)])
    network = Network("kafka", "redis", *others)
    kafka = block.enter_context(KafkaServer(behind=network.ports["kafka"], patience=240))
    block.enter_context(network.before(kafka=kafka.behind_port, redis=pair.master.port, **others))
    pair.follow()
    return kafka, pair, network


def watched(block: ExitStack, made: World) -> None:
    """Have a world note how long its Redis' file is, until the block ends."""
    threading.Thread(target=made.watch, daemon=True).start()
    block.callback(made.ending.set)


def signal_all(process: Process, number: int) -> None:
    """Signal a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def old_version(folder: Path) -> Path | None:
    """The old version's files, in a folder; None where this repository's history is not here."""
    place = folder / "old"
    place.mkdir()
    packed = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True)
    if packed.returncode:
        return None
    subprocess.run(["tar", "x"], cwd=place, input=packed.stdout, check=True)
    return place
