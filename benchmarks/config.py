"""Celery settings of the benchmarks: no pause for queue length, as queues are filled on purpose."""

kafka_pause_above = 100_000_000
kafka_resume_below = 50_000_000
worker_send_task_events = False
