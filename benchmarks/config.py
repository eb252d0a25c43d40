"""Celery settings of the benchmarks: no pause for queue length, as queues are filled on purpose."""

import os

kafka_pause_above = 100_000_000
kafka_resume_below = 50_000_000
worker_send_task_events = False
kafka_topics = {"batch": {"commit": os.environ.get("COMMIT", "handoff"), "order": os.environ.get("ORDER") or None}}
kafka_topics["storm"] = kafka_topics["batch"]
broker_transport_options = {"dead_after": float(os.environ.get("DEAD_AFTER", "30"))}
