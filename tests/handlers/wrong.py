"""celeryconfig with faults."""

from typing import Any

task_acks_late = False
kafka_pause_above = -1
kafka_topics: dict[str, Any] = {"orders": {"comit": "handoff"}}
