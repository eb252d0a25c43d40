"""Periodic jobs of a running bridge, one a file; the problems that they find are declared in bridge/problems."""
