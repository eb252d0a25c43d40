"""The questions that people and programs ask the dead-letter store."""
