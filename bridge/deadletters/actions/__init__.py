"""What a plan does with a batch of its letters: send, discard, archive."""
