"""Plans and their actions (replay, discard, archive, copy, redrive), and the outcomes of what they sent.

A function that asks the database, Kafka or Redis raises DeskUnavailable, KafkaUnavailable or LedgerUnavailable if that
does not answer; a docstring names only the other errors.
"""
