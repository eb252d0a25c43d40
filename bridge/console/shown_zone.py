"""The time zone in which a page shows times: UTC, or the browser's own, which its cookie names."""

from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

#: The cookie with the name of a zone, such as `Europe/Zurich`; the switch of the page sets it.
ZONE_COOKIE: Final = "zone"
_shown: Final[ContextVar[tzinfo]] = ContextVar("shown_zone", default=UTC)


def get_zone() -> tzinfo:
    """Return the zone of the request that is answered."""
    return _shown.get()


def set_zone(zone: tzinfo) -> None:
    """Set the zone of the request that is answered, in its context."""
    _shown.set(zone)


@lru_cache(maxsize=600)
def find_zone(name: str) -> tzinfo:
    """Return the zone of a name; UTC if there is none of that name."""
    if not name or len(name) > 64:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError):
        # ZoneInfoNotFoundError is a KeyError.
        return UTC
    except KeyError:
        return UTC


def name_zone(zone: tzinfo, at: datetime) -> str:
    """Return the short name of a zone at a time: `UTC`, `CET`, or `UTC-03:00` where there is no word."""
    moment = at.astimezone(zone)
    name = moment.tzname() or ""
    return name if name.isascii() and name.isalpha() else f"UTC{moment:%:z}"
