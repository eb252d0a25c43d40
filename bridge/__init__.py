"""The Kafka side: consumes topics, hands deliveries off to Celery, parks and dead-letters records."""

__version__ = "0.1.0"
