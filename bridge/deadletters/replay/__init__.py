"""Plans and what they do: replay, discard, archive, copy, redrive; and how what they sent ends."""
