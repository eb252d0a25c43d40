"""A clock that is fast or slow by CHAOS_CLOCK seconds, in the processes that have this folder on their path.

Python's own clock alone: librdkafka and Redis have the right time, as other machines would.
"""

import os
import time

if fast := float(os.environ.get("CHAOS_CLOCK") or 0):
    _right = time.time

    def _wrong() -> float:
        return _right() + fast

    time.time = _wrong
