"""The recorder: dead-letter topics into the database, and the duties beside it.

A function that asks the database, Kafka or Redis raises DeskUnavailable, KafkaUnavailable or LedgerUnavailable if that
does not answer; a docstring names only the other errors.
"""
