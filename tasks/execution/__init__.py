"""A batch of deliveries in a worker's child process: attempts, time limits, settlement, retries, dead letters,
publication.
"""
