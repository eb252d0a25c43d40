"""celeryconfig whose settings a test gives in the environment; a dead worker's messages come back within seconds."""

import json
import os
from typing import Any

_prefix = os.environ.get("TEST_PREFIX", "test")

broker_transport_options: dict[str, Any] = {"dead_after": 2}

#: TEST_TOPICS: {"orders": {"commit": "completion"}}, without the prefix.
kafka_topics: dict[str, Any] = {
    f"{_prefix}.{name}": options for name, options in json.loads(os.environ.get("TEST_TOPICS", "{}")).items()
}
globals().update(json.loads(os.environ.get("TEST_SETTINGS", "{}")))
