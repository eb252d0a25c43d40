"""`bridge deadletters` and its commands."""
