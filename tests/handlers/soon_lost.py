"""celeryconfig of workers whose messages come back soon after a kill -9."""

broker_transport_options = {"dead_after": 2}
