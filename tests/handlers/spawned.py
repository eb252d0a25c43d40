"""celeryconfig of workers whose children are spawned, not forked."""

worker_pool_start_method = "spawn"
