"""What a plan is, and in which order and how fast its letters go (pure)."""
