"""Status, problems, audit, find, check, topics: read from Kafka and Redis, with no bridge or worker; and the commands
that decide.
"""
