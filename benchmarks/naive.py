"""The loop that everybody writes first: poll → task.delay → commit(asynchronous=True)."""

import os
import sys

from celery import Celery
from confluent_kafka import Consumer

from benchmarks import dozen

app = Celery("naive", broker=os.environ["CELERY_BROKER_URL"])
app.conf.task_ignore_result = True


@app.task(name="raw")
def raw(value: str) -> None:
    """Never run here."""


@app.task(name="timed")
def timed(topic: str, value: str) -> None:
    """Runs as long as the topic's records do."""
    dozen.run(topic, int(value))


def main(topics: list[str]) -> None:
    """Hand off until killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"naive-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(topics)
    while True:
        record = consumer.poll(1.0)
        if record is None or record.error():
            continue
        topic, value = record.topic() or "", (record.value() or b"").decode()
        if topic in dozen.RUNS:
            timed.delay(topic, value)
        else:
            raw.delay(value)
        consumer.commit(asynchronous=True)


if __name__ == "__main__":
    main(sys.argv[1:])
