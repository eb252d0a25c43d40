"""The JSON API of the console, described by the same table that answers."""
