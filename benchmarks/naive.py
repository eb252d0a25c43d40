"""The loop that everybody writes first: poll → task.delay → commit(asynchronous=True)."""

import os
import sys

from celery import Celery
from confluent_kafka import Consumer

app = Celery("naive", broker=os.environ["CELERY_BROKER_URL"])
app.conf.task_ignore_result = True


@app.task(name="raw")
def raw(value: str) -> None:
    """Never run here."""


def main(topic: str) -> None:
    """Hand off until killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"naive-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while True:
        record = consumer.poll(1.0)
        if record is None or record.error():
            continue
        raw.delay((record.value() or b"").decode())
        consumer.commit(asynchronous=True)


if __name__ == "__main__":
    main(sys.argv[1])
