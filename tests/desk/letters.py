"""Letters as the recorder reads them, for tests of what is done with them."""

from typing import Any

from bridge.deadletters.model.failure_group import FailureGroup
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterKind, StoredLetter
from bridge.formats.delivery import Attempts

HANDLER = "orders.handlers.charge"


def letter(source: int = 0, /, **other: Any) -> StoredLetter:
    """One of `orders-0-<source>:orders.handlers.charge`, at the same offset of `orders.dlq-0`.

    Parameters:
        other: fields of Letter, Kind and Group by their names.
    """
    group = FailureGroup(
        other.pop("handler", HANDLER), other.pop("error_class", "builtins.ValueError"), other.pop("place", "a.py:pay")
    )
    common = {name: other.pop(name) for name in LetterKind._fields if name in other and name != "topic"}
    kind = LetterKind(
        **{"group": group, "topic": "orders", "origin": "bridge", "consumer_group": "bridge", "reason": "exhausted"}
        | {"version": ""}
        | common
    )
    identity = LetterIdentity(
        kind.consumer_group,
        "orders",
        other.pop("topic_id", "log"),
        0,
        source,
        group.handler,
    )
    fields: dict[str, Any] = {
        "identity": identity,
        "kind": kind,
        "key": b"k",
        "value": b"{}",
        "headers": (("h", b"1"), ("h", None)),
        "timestamp": 1_000,
        "number": 0,
        "runs": 13,
        "attempts": Attempts(13),
        "error_message": "no",
        "traceback": 'Traceback (most recent call last):\n  File "/a.py", line 1, in pay\nValueError: no\n',
        "first_failed_at": 5_000,
        "failed_at": 10_000,
        "topic": "orders.dlq",
        "partition": 0,
        "offset": source,
    }
    return StoredLetter(**fields | other)
