"""Sends what is due, as a recorder does, and dies after a step: `python -m tests.desk.webhook_sender URL STEP`."""

import os
import signal
import sys
import threading
from typing import Any

from bridge.deadletters.alarms import webhook_sender
from bridge.deadletters.db import webhook_rows
from bridge.deadletters.db.database import Database
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.servers.receiver import HERE

#: Where it may die: after which function was done, or when what it wrote is committed.
STEPS = ("leased", "taken", "posted", "noted", "committed")


def settings(url: str, **other: str) -> Settings:
    """Of a process that may send to this machine."""
    said = EnvironmentSettings(DEADLETTERS_DATABASE_URL=url, DEADLETTERS_WEBHOOK_NETWORKS=HERE).model_copy(update=other)
    return Settings(FileSettings(), said, "memory://", {})


def _dies_after(holder: Any, name: str) -> None:
    whole = getattr(holder, name)

    def done(*args: Any, **options: Any) -> Any:
        whole(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(holder, name, done)


def main(url: str, step: str) -> None:
    """Send until nothing is due, or die."""
    where = {
        "leased": (webhook_rows, "lease_webhook"),
        "taken": (webhook_rows, "take_due_delivery"),
        "posted": (webhook_sender, "post_event"),
        "noted": (webhook_rows, "end_delivery"),
        "committed": (webhook_sender.WebhookSender, "_note"),
    }
    if step in where:
        # Who goes on waits no longer than this.
        webhook_rows.WEBHOOK_LEASE_MS = 1_000  # type: ignore[misc]
        _dies_after(*where[step])
    webhook_sender.send_due_events(settings(url), Database(url), threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
