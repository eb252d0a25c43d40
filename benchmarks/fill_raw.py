"""Puts messages for raw Celery into the queue, with Celery's own `delay`."""

import sys

from benchmarks.handlers import raw

for number in range(int(sys.argv[1])):
    raw.delay(f"{number:<200}")
