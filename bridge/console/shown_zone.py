"""The time zone in which a page shows times: UTC, or the browser's own, which its cookie names."""

import re
import time
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: The cookie with the name of a zone, such as `Europe/Zurich`; the switch of the page sets it.
ZONE_COOKIE: Final = "zone"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,3}")
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
    if not _NAME.fullmatch(name):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return UTC


def name_zone(at: int) -> str:
    """Return the short name of the shown zone at a time: `UTC`, `CET`, or `UTC-03:00` where it has none.

    Parameters:
        at: ms since the epoch.
    """
    moment = datetime.fromtimestamp(at / 1000, get_zone())
    name = moment.tzname() or ""
    if name.isascii() and name.isalpha():
        return name
    offset = moment.strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:5]}"


def name_current_zone() -> str:
    """Return the short name of the shown zone now."""
    return name_zone(int(time.time() * 1000))
