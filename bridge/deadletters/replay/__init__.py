"""Plans and their actions (replay, discard, archive, copy, redrive), and the outcomes of what they sent."""
