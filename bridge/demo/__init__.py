"""`bridge demo`: records, retries and dead letters to look at, on servers that it brings along."""
