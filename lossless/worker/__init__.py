"""The main process of a worker: every end of a task, and every message that it cannot read."""
