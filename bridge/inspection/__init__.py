"""Inspection from Kafka and Redis without a running bridge: status, audit, find, check, topics."""
