"""celeryconfig of a bridge that makes no topics."""

kafka_create_topics = False
