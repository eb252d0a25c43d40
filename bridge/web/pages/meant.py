"""What a plan was asked for, in words and as an address (pure)."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from bridge.deadletters.letters import meant


def words(asked: Mapping[str, Any]) -> str:
    """`handler orders.handlers.charge, reason poison`; "" for all letters that are open."""
    if "topic" not in asked:
        return meant.words(_filter(asked))
    # A range of a source topic; `Redrive.Asked.to_data`.
    limits = [
        *(f"partition {each}" for each in asked.get("partitions", ())),
        *(f"handler {each}" for each in asked.get("handlers", ())),
        *(["one key"] if "key" in asked else []),
    ]
    return ", ".join([f"topic {asked['topic']} from {asked.get('from')} to {asked.get('to')}", *limits])


def address(asked: Mapping[str, Any]) -> str | None:
    """Of the letters that it means now; `None`: they were chosen one by one, or are no letters."""
    if "topic" in asked or _filter(asked).get("ids"):
        return None
    return f"/letters?{urlencode([*meant.pairs(_filter(asked))])}"


def _filter(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a patch, the letters that it is for."""
    found: Mapping[str, Any] = asked.get("filter", asked)
    return found
