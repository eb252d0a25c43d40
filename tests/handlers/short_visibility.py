"""celeryconfig of workers whose messages come back soon after a kill -9."""

from typing import Any

broker_transport_options: dict[str, Any] = {
    "visibility_timeout": 3,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
}
