"""The validation of a Celery message's headers and body, before a worker can die of them (pure).

Celery takes them as they come. One of a wrong type ends the worker or puts it in a loop, hangs, or is dropped
in silence: a `timelimit` that is not a pair, a missing `id`, a `shadow` that cannot be a dict key, an eta in
the year 9999 (celery/worker/request.py, celery/worker/strategy.py). Headers can be hostile: whoever may
publish chooses them.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

ETA_LIMIT = timedelta(days=366)
EPOCH = datetime(1970, 1, 2, tzinfo=UTC)

TEXTS = (
    "root_id",
    "parent_id",
    "shadow",
    "group",
    "lang",
    "origin",
    "argsrepr",
    "kwargsrepr",
    "eta",
    "expires",
)
COUNTS = ("retries", "replaced_task_nesting")
#: The types of texts and of missing ones.
TEXT_TYPES = frozenset((str, type(None)))


def find_header_fault(headers: Mapping[str, object]) -> str | None:
    """Return what is wrong with a message's headers, or None."""
    if not isinstance(headers.get("id"), str) or not headers["id"]:
        return f"its id is {headers.get('id')!r}, not a text"
    if not TEXT_TYPES.issuperset(map(type, map(headers.get, TEXTS))):
        for name in TEXTS:
            value = headers.get(name)
            if value is not None and not isinstance(value, str):
                return f"its header {name} is {value!r}, not a text"
    for name in COUNTS:
        value = headers.get(name)
        if value is not None and (type(value) is not int or value < 0):
            return f"its header {name} is {value!r}, not a number from 0 up"
    return _fault_in_timelimit(headers.get("timelimit")) or _fault_in_stamps(headers)


def find_call_fault(payload: object) -> str | None:
    """Return what is wrong with a decoded body (args, kwargs, embed), or None."""
    if not isinstance(payload, (list, tuple)) or len(payload) != 3:
        return "its body is not a list of arguments, keyword arguments and options"
    args, kwargs, embed = payload
    if not isinstance(args, (list, tuple)):
        return f"its arguments are a {type(args).__name__}, not a list"
    if not isinstance(kwargs, dict):
        return f"its keyword arguments are a {type(kwargs).__name__}, not a mapping"
    if embed is not None and not isinstance(embed, dict):
        return f"its options are a {type(embed).__name__}, not a mapping"
    return None


def find_eta_fault(eta: datetime | None, now: datetime) -> str | None:
    """Return what is wrong with the time a message is due at, or None. A worker would hold it until then."""
    if eta is None or EPOCH <= eta <= now + ETA_LIMIT:
        return None
    return f"it is due at {eta.isoformat()}: not within {ETA_LIMIT.days} days"


def _fault_in_timelimit(limits: object) -> str | None:
    if limits is None:
        return None
    if not isinstance(limits, (list, tuple)) or len(limits) != 2:
        return f"its header timelimit is {limits!r}, not a pair"
    for limit in limits:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit < 0):
            return f"its header timelimit is {limits!r}, not two numbers of seconds"
    return None


def _fault_in_stamps(headers: Mapping[str, object]) -> str | None:
    names, stamps = headers.get("stamped_headers"), headers.get("stamps")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return f"its header stamped_headers is {names!r}, not a list of texts"
    if stamps is not None and not isinstance(stamps, dict):
        return f"its header stamps is {stamps!r}, not a mapping"
    return None
