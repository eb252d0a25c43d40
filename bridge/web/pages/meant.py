"""What a plan was asked for, in words and as an address (pure)."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

#: A filter's fields as addresses name them.
_NAMES: Final = {
    "handlers": "handler",
    "topics": "topic",
    "exceptions": "exception",
    "reasons": "reason",
    "versions": "version",
    "origins": "origin",
    "groups": "group",
    "statuses": "status",
    "text": "text",
    "since": "since",
    "until": "until",
}


def words(asked: Mapping[str, Any]) -> str:
    """`handler orders.handlers.charge, reason poison`; "" for all letters."""
    if ids := asked.get("ids"):
        return f"letter {ids[0]}" if len(ids) == 1 else f"{len(ids):,} letters, chosen one by one"
    if "topic" in asked:
        return f"topic {asked['topic']}"
    return ", ".join(f"{name} {value}" for name, value in _pairs(asked) if (name, value) != ("status", "open"))


def address(asked: Mapping[str, Any]) -> str | None:
    """Of the letters that it means now; `None`: they were chosen one by one, or are no letters."""
    if asked.get("ids") or "topic" in asked:
        return None
    return f"/letters?{urlencode([*_pairs(asked)])}"


def _pairs(asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field, name in _NAMES.items():
        value = asked.get(field)
        if value is None or value == "":
            continue
        for each in value if isinstance(value, list) else [value]:
            yield name, _time(each) if field in ("since", "until") else str(each)
    for header in asked.get("headers", ()):
        yield "header", "=".join(header)
    if "key" in asked:
        yield "key", f"base64:{asked['key']}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
