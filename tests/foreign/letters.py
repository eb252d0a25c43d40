"""Dead letters that others write: a real Spring Kafka and a real Kafka Connect, which fail on what they read.

`write` is what a test wants; the fixture `foreign_letters` (tests/conftest.py) has done so once for the run.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bridge.kafka.clients import Record
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerProcess
from tests.servers.server import Server

_FOLDER: Final = Path(__file__).parents[2] / ".kafka" / "foreign"
_JAVA: Final = ("java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
#: Each source topic has two partitions, and all that fails lies in this one, from offset 0 on.
PARTITION: Final = 1
#: The producer's own headers, on every record; the last is a name that a letter of ours has, too.
HEADERS: Final = (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("reason", b"a rebate"))
_RECORDS: Final[Mapping[str, tuple[tuple[bytes | None, bytes | None], ...]]] = {
    "plain": ((b"4711", b"visa"), (b"4712", b"master")),
    "counted": ((b"4711", b"visa"),),
    "typed": ((b"4711", b"12345678"), (b"12345678", b"no long"), (b"no long", b"none either")),
    "retried": ((b"4711", b"visa"),),
    "sink": ((b"4711", b"no {json"), (b"4712", b'{"amount": 3}')),
}
#: The class path has it all; the service loader of Connect finds its converters there.
_CONNECT: Final = """\
bootstrap.servers={servers}
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/offsets
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
consumer.auto.offset.reset=earliest
"""
_CONNECTOR: Final = """\
name=warehouse
connector.class=RefusingSink
tasks.max=1
topics={source}
errors.tolerance=all
errors.deadletterqueue.topic.name={letters}
errors.deadletterqueue.topic.replication.factor=1
errors.deadletterqueue.context.headers.enable=true
"""
_LOG4J: Final = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""


@dataclass(frozen=True, slots=True)
class ForeignTopic:
    """A topic of somebody else's letters.

    Attributes:
        source: where the records first lay, at `PARTITION` from offset 0 on.
        topic: where their letters lie.
        letters: how many.
    """

    source: str
    topic: str
    letters: int


def missing() -> str | None:
    """Why none can be written here and what to do about it, or None if they can."""
    if shutil.which("java") is None:
        return "no Spring Kafka, no Kafka Connect: java is missing (on Debian: apt install default-jdk-headless)"
    if not any((_FOLDER / "classes").glob("*.class")):
        return "no Spring Kafka, no Kafka Connect: they are not fetched (`make foreign`; needs Maven and a JDK)"
    return None


def write(kafka: KafkaServer, prefix: str) -> Mapping[str, ForeignTopic]:
    """Run both on topics of this prefix until their letters are there, and end them.

    Guarantees: topics by name. `plain` and `counted` (which says how often it tried) are written by Spring's
    `DeadLetterPublishingRecoverer`, `typed` by it for what could not be decoded (a value; a key and a value, twice),
    `retried` by Spring's `@RetryableTopic`, `sink` by Connect (a value that is no JSON, and one that the sink refuses).

    Raises:
        ServerFailed: one of them has not come so far, with the end of its log.
    """
    topics = {
        name: ForeignTopic(f"{prefix}.{name}", f"{prefix}.{name}-dlt", len(records))
        for name, records in _RECORDS.items()
    }
    kafka.create_topics(*(topic.source for topic in topics.values()), f"{prefix}.retried-retry", partitions=2)
    kafka.create_topics(*(topic.topic for topic in topics.values()), partitions=2)
    _produce(kafka, topics)
    with _Spring(kafka, prefix, topics), _Connect(kafka, topics["sink"]):
        return topics


def letters_of(kafka: KafkaServer, topic: str) -> list[Record]:
    """All records of a topic of two partitions."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "letters"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
        return list(_read(consumer, _count(kafka, topic)))
    finally:
        consumer.close()


class _Spring(Server):
    """Started once its letters are there."""

    def __init__(self, kafka: KafkaServer, prefix: str, topics: Mapping[str, ForeignTopic]):
        super().__init__("spring")
        mine = [topic for name, topic in topics.items() if name != "sink"]
        properties = (f"-Dbootstrap={kafka.bootstrap_servers}", f"-Dprefix={prefix}")
        command = [*_java(self.folder), *properties, "SpringLetters"]
        self.process = ServerProcess(command, self.folder, lambda: all(_written(kafka, topic) for topic in mine), 90)


class _Connect(Server):
    """Started once its letters are there."""

    def __init__(self, kafka: KafkaServer, topic: ForeignTopic):
        super().__init__("connect")
        worker, connector = self.folder / "worker.properties", self.folder / "connector.properties"
        worker.write_text(_CONNECT.format(servers=kafka.bootstrap_servers, folder=self.folder, port=self.port))
        connector.write_text(_CONNECTOR.format(source=topic.source, letters=topic.topic))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [*_java(self.folder), main, str(worker), str(connector)]
        self.process = ServerProcess(command, self.folder, lambda: _written(kafka, topic), 90)


def _java(folder: Path) -> list[str]:
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return [*_JAVA, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{_FOLDER / 'classes'}:{_FOLDER / 'libs'}/*"]


def _produce(kafka: KafkaServer, topics: Mapping[str, ForeignTopic]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for name, topic in topics.items():
        for key, value in _RECORDS[name]:
            producer.produce(topic.source, value, key, PARTITION, headers=list(HEADERS))
    assert producer.flush(30) == 0


def _written(kafka: KafkaServer, topic: ForeignTopic) -> bool:
    try:
        return _count(kafka, topic.topic) >= topic.letters
    except KafkaException:  # its leader is not chosen yet
        return False


def _count(kafka: KafkaServer, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "letters"})
    try:
        places = [TopicPartition(topic, partition) for partition in (0, 1)]
        return sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    finally:
        consumer.close()


def _read(consumer: Consumer, count: int) -> Iterator[Record]:
    while count:
        for record in consumer.consume(count, 10):
            assert not record.error(), record.error()
            count -= 1
            yield record
