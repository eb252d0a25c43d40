"""What a dead letter, a filter and a plan are. Pure: nothing here reads a database, Redis or Kafka."""
