"""A pytest plugin for the suites of others: over which transport they run, for how long, and what came of each test.

In the environment: RECORD_TO, a file that gets a line of JSON a report; RECORD_SECONDS, after which the rest is
skipped; OVER_LOSSLESS, "yes" for this package's transport.
"""

import json
import os
import time
from typing import Any

import pytest
from celery.app.control import Inspect

from lossless import transport
from lossless.worker import inspect_commands

_ends_at = time.monotonic() + float(os.environ["RECORD_SECONDS"])

if os.environ["OVER_LOSSLESS"] == "yes":
    transport.use()
    inspect_commands.register_commands()

_init = Inspect.__init__


def _asks_one(self: Any, *args: Any, **options: Any) -> None:
    """Celery's tests have one worker, and wait a second or three for the answers of others after each test."""
    _init(self, *args, **options)
    self.limit = self.limit or 1


Inspect.__init__ = _asks_one  # type: ignore[method-assign]


def pytest_runtest_setup(item: Any) -> None:
    if time.monotonic() > _ends_at:
        pytest.skip("its time is over")


def pytest_runtest_logreport(report: Any) -> None:
    with open(os.environ["RECORD_TO"], "a") as file:
        file.write(json.dumps([report.nodeid, report.outcome, str(report.longrepr)[-3000:]]) + "\n")
