"""What a dead letter is: read off its record, told by words and filters (pure)."""
