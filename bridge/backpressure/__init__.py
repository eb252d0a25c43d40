"""Backpressure: the reasons to pause a partition; `partition_pauses` alone pauses and resumes."""
