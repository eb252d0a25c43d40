"""Periodic jobs of a running bridge, one a file, and the problems that they find."""
