"""The ends of a range as a person writes them (pure)."""

from datetime import UTC, datetime

from bridge.deadletters.letters import written
from bridge.errors import FilterFault, NoMoment


def moment(text: str, now: float) -> str:
    """An end of a range as Kafka is asked for it: a time with its zone.

    Parameters:
        text: `earliest`, `latest`, an offset, or a time as filters take it (`2026-11-20T08:00`, `2h`, `today`).
        now: seconds since the epoch.

    Raises:
        NoMoment: it is none of these.
    """
    if text in ("earliest", "latest") or (text.isascii() and text.isdecimal()):
        return text
    try:
        return datetime.fromtimestamp(written.moment(text, now) / 1000, UTC).isoformat()
    except FilterFault as error:
        raise NoMoment(f"{str(error).rstrip('.')}; or an offset, earliest or latest.") from None
