"""Puts messages for raw Celery into the queue, with Celery's own `delay`."""

import sys

from benchmarks import raw

task = getattr(raw, sys.argv[2])
for number in range(int(sys.argv[1])):
    task.delay(f"{number:<200}")
