"""Kafka's clients, topics and offsets: names of topics, their creation and survey, publishing and reading back."""
