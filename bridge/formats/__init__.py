"""The forms in which messages, deliveries, failures and decisions travel through Celery and Kafka."""
