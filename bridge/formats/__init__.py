"""The formats of messages, deliveries, failures and decisions in Celery messages and Kafka records."""
