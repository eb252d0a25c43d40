"""What a filter asks for, in words and as an address says it (pure)."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from bridge.deadletters.letters.filters import Filter

#: A filter's fields as the command line and addresses name them.
_NAMES: Final = {
    "handlers": "handler",
    "topics": "topic",
    "exceptions": "exception",
    "reasons": "reason",
    "versions": "version",
    "origins": "origin",
    "groups": "group",
    "causes": "cause",
    "plans": "plan",
    "statuses": "status",
    "text": "text",
    "since": "since",
    "until": "until",
    "attempts": "attempts",
}
#: What of it are parts of letters, which not everybody sees.
_OF_LETTERS: Final = {"text": "words", "key": "a key", "headers": "headers"}


def words(asked: Mapping[str, Any]) -> str:
    """`handler orders.handlers.charge, reason poison`; "" for all that is open.

    Parameters:
        asked: as `Filter.to_data` has it.
    """
    return ", ".join(each for each in _said(asked) if each != "status open")


def noted(asked: Filter) -> str:
    """The same for the trail, which everybody reads, and for ever: of words, keys and headers only that they were."""
    data = asked.to_data()
    named = _said({name: value for name, value in data.items() if name not in _OF_LETTERS})
    return ", ".join([*named, *(said for name, said in _OF_LETTERS.items() if name in data)]) or "all"


def _said(asked: Mapping[str, Any]) -> list[str]:
    if ids := asked.get("ids"):
        return [f"letter {ids[0]}" if len(ids) == 1 else f"{len(ids):,} letters, chosen one by one"]
    return [f"{name} {value}" for name, value in pairs(asked)]


def pairs(asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A filter as an address has it."""
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
    if asked.get("died_again"):
        yield "died-again", "yes"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
