"""The console: the desk in a browser. It asks the desk and `bridge.commands`, and has no query of its own."""
