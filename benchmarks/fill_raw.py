"""Puts messages for raw Celery into the queue, by Celery's `delay`: how many, of which task, from which number."""

import sys

from benchmarks import raw

count, name, *start = sys.argv[1:]
task = getattr(raw, name)
for number in range(int(count)):
    task.delay(f"{number + int(start[0] if start else 0):<200}")
