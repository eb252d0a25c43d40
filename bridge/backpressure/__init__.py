"""Backpressure: the reasons to pause a partition; `pause_applier` alone pauses and resumes."""
