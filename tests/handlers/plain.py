"""A handler that is called by hand as well."""

import os
from pathlib import Path

from tasks import handler
from tests.handlers.notes import topic


@handler(topic("orders"))
def greet(name: str) -> None:
    Path(os.environ["TEST_RUNS"]).write_text(f"Hello {name}")
