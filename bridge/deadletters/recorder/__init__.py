"""The recorder: dead-letter topics into the database, and the duties beside it.

What asks the database, Kafka or Redis raises DeskUnavailable, KafkaUnavailable or LedgerUnavailable if that does not
answer; a docstring names only what is raised besides.
"""
