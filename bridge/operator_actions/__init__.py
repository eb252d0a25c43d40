"""Decisions and changes of a person: halt, resume, policy, reset, discard. They need no running bridge."""
