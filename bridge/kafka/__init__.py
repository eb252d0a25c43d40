"""Kafka's clients, topics and offsets: topic names, creation and survey, publishing and reading back."""
