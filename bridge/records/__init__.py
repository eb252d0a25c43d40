"""What travels: a place, message, failure; the forms in which they go through Celery and through Kafka."""
