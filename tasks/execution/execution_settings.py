"""The Celery settings that each message is run by, read once: Celery looks through some ten mappings for each read."""

from functools import lru_cache
from typing import Any, NamedTuple

from lossless.transport.message_recovery import DEAD_AFTER


class ExecutionSettings(NamedTuple):
    """The settings of an app that no message changes."""

    soft_time_limit: float | None
    time_limit: float | None
    deduplicates: bool
    dead_after: float

    @classmethod
    def from_conf(cls, conf: Any) -> "ExecutionSettings":
        """Return what an app's configuration says now."""
        return cls(
            soft_time_limit=conf.task_soft_time_limit,
            time_limit=conf.task_time_limit,
            deduplicates=bool(conf.worker_deduplicate_successful_tasks),
            dead_after=float((conf.broker_transport_options or {}).get("dead_after") or DEAD_AFTER),
        )


@lru_cache(maxsize=8)
def read_execution_settings(app: Any) -> ExecutionSettings:
    """Return an app's settings as they were when the first message was run by them."""
    return ExecutionSettings.from_conf(app.conf)
