"""Celery on Redis that loses nothing: a transport, a request and a consumer, which know nothing of Kafka."""
