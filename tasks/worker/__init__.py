"""The worker beside its handlers: start and end, announcement, the main process's side of a delivery, metrics and
telemetry.
"""
