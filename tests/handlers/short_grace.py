"""celeryconfig of workers that have little time to end."""

worker_soft_shutdown_timeout = 1
