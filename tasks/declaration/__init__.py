"""`@handler`: options, parameters, codec and upgrade of a handler, and the task class that they make."""
