"""The Kafka side: consumes topics, hands deliveries to Celery, parks and dead-letters records."""

__version__ = "0.1.0"
