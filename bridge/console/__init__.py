"""The web console: pages and a JSON API over the dead-letter store. It has no query of its own."""
