"""Whether a handler would take a value: its own codec, model and `upgrade` are asked, through its task."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from celery import Celery


class Verdict(NamedTuple):
    """What a handler says of a value.

    Attributes:
        ok: whether it would be given it; `None`: that cannot be told here and now.
        why: why not, or why it cannot be told; empty where it is ok.
        upgraded: whether it is ok only after the handler's `upgrade`.
    """

    ok: bool | None
    why: str = ""
    upgraded: bool = False


def verdict(app: Celery, handler: str, value: bytes | None) -> Verdict:
    """What a handler says of a value, without running.

    Parameters:
        handler: of others' letters, "": nobody but whoever wrote the letter knows what its values must be.
        value: `None` is a tombstone, which every handler takes.
    """
    if not handler:
        return Verdict(None, "no handler of this group reads it: nobody here knows what its value must be")
    tasks: Mapping[str, Any] = app.tasks
    check = getattr(tasks.get(handler), "check_value", None)
    if check is None:
        return Verdict(None, f"{handler} is no handler of this app: see -A, HANDLERS and `imports`")
    found = check(value)
    return Verdict(found.ok, found.why, found.upgraded)
