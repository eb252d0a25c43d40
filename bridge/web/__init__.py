"""The console: the desk in a browser. It asks `bridge.deadletters.desk` and `bridge.commands`, and has no query of its own."""
