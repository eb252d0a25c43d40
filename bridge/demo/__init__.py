"""The command `bridge demo`: records, retries and dead letters to watch, on embedded servers."""
