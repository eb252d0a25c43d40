"""celeryconfig of workers whose messages come back soon after a kill -9; three deaths are held to be a message's."""

broker_transport_options = {"dead_after": 2}
restored_limit = 3
