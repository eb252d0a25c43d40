"""Celery settings of the benchmarks: all is at its default but for what a benchmark asks for in the environment."""

import os

from bridge.dispatch import queue_room

if "EVENTS" in os.environ:
    worker_send_task_events = os.environ["EVENTS"] == "on"
if "FILL" in os.environ:
    # No pause for the queue's length: it is filled on purpose.
    kafka_pause_above, kafka_resume_below = 100_000_000, 50_000_000
    # Nor a limit for what waits while no worker is there.
    vars(queue_room)["UNKNOWN_IN_ALL"] = 100_000_000
if "DEAD_AFTER" in os.environ:
    broker_transport_options = {"dead_after": float(os.environ["DEAD_AFTER"])}
if "COMMIT" in os.environ:
    _options = {"commit": os.environ["COMMIT"], "order": os.environ.get("ORDER") or None}
    kafka_topics = {os.environ["TOPIC"]: _options}
