"""celeryconfig of a bridge that pauses early."""

kafka_pause_above = 50
kafka_resume_below = 20
