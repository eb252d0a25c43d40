"""A real Apache Kafka: one node, broker and controller in one (KRaft), on 127.0.0.1."""

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bridge.kafka.clients import AdminClient, NewTopic
from tests.servers.process import ServerFailed, ServerProcess, free_port
from tests.servers.server import Server

_JAVA = ["java", "-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
_LOG4J = """\
Configuration:
  Appenders:
    Console: {name: STDOUT, PatternLayout: {pattern: "%d %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: STDOUT}]}
"""


def jars() -> Path | None:
    """The folder of Kafka's jars: .kafka/libs of this project (`make kafka`), else $KAFKA_LIBS, else None."""
    folders = [Path(__file__).parents[2] / ".kafka" / "libs"]
    if "KAFKA_LIBS" in os.environ:
        folders.append(Path(os.environ["KAFKA_LIBS"]))
    return next((folder.resolve() for folder in folders if any(folder.glob("kafka_*.jar"))), None)


def missing() -> str | None:
    """Why no Kafka can be started here and what to do about it, or None if one can."""
    if shutil.which("java") is None:
        return "no real Kafka: java is missing (on Debian: apt install default-jre-headless)"
    if jars() is None:
        return "no real Kafka: its jars are missing (`make kafka` fetches them; or set KAFKA_LIBS)"
    return None


class KafkaServer(Server):
    """A Kafka. Topics are not made on first use unless `auto_create_topics`; `settings` are further lines of
    server.properties.

    With `behind` it has a second listener, on `behind_port`, for clients that come in by a proxy on the port `behind`:
    they are told that address for all that follows. `patience` is in seconds: how long it may take to start.
    """

    def __init__(
        self,
        *,
        auto_create_topics: bool = False,
        settings: Mapping[str, str] | None = None,
        behind: int | None = None,
        patience: float = 60,
    ):
        super().__init__("kafka")
        self._controller_port = free_port()
        self._settings = {"auto.create.topics.enable": str(auto_create_topics).lower(), **(settings or {})}
        self.behind, self.behind_port = behind, free_port()
        self._formatted = False
        libs = jars()
        if libs is None:
            raise ServerFailed(missing() or "no jars")
        log4j = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}"
        self._java = [*_JAVA, log4j, "-cp", f"{libs}/*"]
        command = [*self._java, "kafka.Kafka", "server.properties"]
        self.process = ServerProcess(command, self.folder, self._answers, patience)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Format the storage at the first start, then run and wait until it answers."""
        if not self._formatted:
            self._format()
            self._formatted = True
        super().start()

    def create_topics(self, *topics: str, partitions: int = 1) -> None:
        """Create topics and return when they are there. Raises KafkaException, for one that exists too."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        futures = admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
        for future in futures.values():
            future.result(30)

    def cut(self, topic: str, offset: int, partition: int = 0) -> None:
        """While it is stopped: let a partition's log end before `offset`, as after a disk that lost its cache.

        Only the first segment is known here, and `offset` must begin a batch.
        """
        (folder,) = (self.folder / "data").glob(f"{topic}-{partition}")
        log = folder / f"{0:020}.log"
        raw, at = log.read_bytes(), 0
        while at < len(raw) and struct.unpack_from(">q", raw, at)[0] < offset:
            at += 12 + struct.unpack_from(">i", raw, at + 8)[0]
        log.write_bytes(raw[:at])
        # So that it looks at the log again, and makes anew what it had noted of it.
        (self.folder / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for noted in [*folder.glob("*index"), *folder.glob("*.snapshot")]:
            noted.unlink()

    def _answers(self) -> bool:
        # A client of its own for each look: one that has seen a refused connection waits before the next.
        settings = {"bootstrap.servers": self.bootstrap_servers, "group.id": "ready", "log_level": 0}
        consumer = Consumer(settings)
        try:
            # The coordinator's log is made at its first use, and until then a group gets NOT_COORDINATOR.
            consumer.committed([TopicPartition("ready", 0)], timeout=1)
        except KafkaException:
            return False
        finally:
            consumer.close()
        return True

    def _format(self) -> None:
        (self.folder / "log4j2.yaml").write_text(_LOG4J)
        (self.folder / "server.properties").write_text(self._properties())
        arguments = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", "server.properties"]
        done = subprocess.run([*self._java, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise ServerFailed(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _properties(self) -> str:
        controller = f"127.0.0.1:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            # One, so that where one group finds its coordinator every group does.
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # So that a test of a killed consumer need not wait 6 s for its partitions.
            "group.min.session.timeout.ms": "1000",
            # The same for the new protocol of groups (KIP-848), whose times no client chooses.
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "500",
            # After kill -9 the controller keeps the dead broker's seat for this long.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **self._further_listeners(),
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _further_listeners(self) -> dict[str, str]:
        if self.behind is None:
            return {}
        here, controller = f"PLAINTEXT://{self.bootstrap_servers}", f"CONTROLLER://127.0.0.1:{self._controller_port}"
        return {
            "listeners": f"{here},PROXIED://127.0.0.1:{self.behind_port},{controller}",
            "advertised.listeners": f"{here},PROXIED://127.0.0.1:{self.behind}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
