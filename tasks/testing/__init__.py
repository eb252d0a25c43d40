"""Tests of handlers without Kafka, Redis and workers: the outcome of a record at any attempt.

`outcome` runs a handler on a record, and says what becomes of the delivery.
"""

from tasks.testing.handler_outcome import Outcome, limit_key, outcome, outcome_of, outcomes, unique_name

__all__ = ["Outcome", "limit_key", "outcome", "outcome_of", "outcomes", "unique_name"]
