"""Messages that are due together and wait as one: a list that each carries is joined, in the step that lets it wait.

A message asks for it with the header `joins`. Where another waits for the same list and time, whose header has the same
name, the new one's items are put behind those of that one, and nothing else of it is kept; so whoever sends it
must put all that matters into the list. The list stands anywhere in the headers, under a name that occurs once, and
behind it, last in its object, how many items it has: ``"items": [...], "joined": "0002"}``. A message in which that is
not beyond doubt waits by itself.

It is one step in Redis: there is no moment in which a message is in neither. What is sent again because the answer was
lost is found in the list, and joined once.
"""

from __future__ import annotations

from typing import Any, Final

from kombu.utils.json import dumps

#: The header of a message that joins others.
JOINS: Final = "joins"
#: What stands behind the list, under its name in the same object.
JOINED: Final = "joined"
#: Most bytes of a message that others are joined to.
MOST_BYTES: Final = 1_000_000
#: Messages that are due at one moment, of all names, among which one to join is looked for; and where the answer to the
#: last try was lost, so that it may have been joined.
LOOKED_AT: Final = (8, 1_000)


def joining(name: str, items: str, most: int) -> dict[str, Any]:
    """Return the value of the header `joins`.

    Parameters:
        name: those of one name are joined.
        items: the name of the list.
        most: the most items of a message after it has joined, 9,999 at the most.
    """
    return {"name": name, "items": items, "most": min(most, 9_999)}


def joined(count: int) -> str:
    """Return what stands behind a list of so many items."""
    return f"{count:04d}"


def arguments(message: dict[str, Any], again: bool) -> list[str | int]:
    """Return what the script is told of how a message joins others.

    Parameters:
        again: whether it may wait already, as the answer to the last try was lost.
    """
    asked = message["headers"].get(JOINS)
    if not isinstance(asked, dict) or set(asked) != {"name", "items", "most"} or not isinstance(asked["most"], int):
        return ["", "", 0, 0, 0]
    whose = dumps({"name": asked["name"], "items": asked["items"]}).removesuffix("}")
    return [f'"{JOINS}": {whose}, "most": ', f"{dumps(asked['items'])}: [", asked["most"], MOST_BYTES, LOOKED_AT[again]]
