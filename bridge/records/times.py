"""How a time is written for people and programs."""

from datetime import UTC, datetime


def iso(at: float, precision: str = "seconds") -> str:
    """A Unix time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=precision)
