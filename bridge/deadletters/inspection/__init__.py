"""What people and programs ask of the dead-letter store."""
