"""Dead letters, filters and plans as values. Pure: nothing here reads a database, Redis or Kafka."""
