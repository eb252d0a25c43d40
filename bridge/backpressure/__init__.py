"""Backpressure: why a partition is paused; `partition_pauses` alone pauses and resumes."""
