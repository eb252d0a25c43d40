"""A service with an HTTP API and a Celery app of its own."""
