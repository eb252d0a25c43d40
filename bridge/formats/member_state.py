"""The state that a bridge, worker or recorder announces, with the type of each field checked (pure)."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from bridge.errors import UnreadableJson
from bridge.formats.untrusted_json import is_time, parse_json

MemberKind = Literal["bridges", "workers", "recorders"]
_Check = Callable[[Any], bool]


class MemberState(NamedTuple):
    """An announcement that was read.

    Attributes:
        fields: what the member announced; a field of a wrong type is left out.
        wrong: the names of those fields.
    """

    fields: Mapping[str, Any]
    wrong: tuple[str, ...] = ()


def read_member_state(raw: Any, kind: MemberKind) -> MemberState:
    """Return what a member announced.

    Raises:
        UnreadableJson: it is no announcement.
    """
    state = parse_json(raw)
    if not isinstance(state, dict):
        raise UnreadableJson("it is no object")
    if kind == "workers" and not _is_list(_is_text)(state.get("queues")):
        raise UnreadableJson("it does not name the queues that the worker consumes")
    wrong = tuple(sorted(name for name, is_right in _FIELDS.items() if name in state and not is_right(state[name])))
    fields = {name: value for name, value in state.items() if name not in wrong}
    return MemberState({**_NEEDED[kind], **fields}, wrong)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_version(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(is_right: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def _is_map(is_right: _Check) -> _Check:
    return lambda value: isinstance(value, dict) and all(map(is_right, value.values()))


def _is_object(**fields: _Check) -> _Check:
    """Return a check for an object with at least these fields."""
    return lambda value: (
        isinstance(value, dict) and all(name in value and is_right(value[name]) for name, is_right in fields.items())
    )


_is_counts: Final = _is_map(_is_map(_is_count))
#: Every known field. An unknown one is kept as it is: a newer version may have written it.
_FIELDS: Final[Mapping[str, _Check]] = {
    "name": _is_text,
    "group": _is_text,
    "cluster": _is_version,
    "versions": _is_map(_is_version),
    "started": is_time,
    "since": is_time,
    "topics": _is_list(_is_text),
    "handlers": _is_list(_is_text),
    "handler_versions": _is_map(_is_version),
    "queues": _is_list(_is_text),
    "processes": lambda value: isinstance(value, int) and value >= 0,
    "holds": _is_counts,
    "due": _is_counts,
    "routes": _is_map(_is_list(_is_text)),
    "assigned": _is_list(_is_text),
    "paused": _is_map(_is_text),
    "paused_since": _is_map(is_time),
    "obstacles": _is_list(_is_text),
    "obstacles_since": _is_list(is_time),
    "unmade": _is_list(_is_text),
    "open_transactions": _is_list(
        _is_object(topic=_is_text, partition=_is_count, offset=_is_count, count=_is_count, since=is_time)
    ),
    "waiting": _is_list(
        _is_object(topic=_is_text, partition=_is_count, handler=_is_text, offset=_is_count, seconds=_is_count)
    ),
    "hot_keys": _is_list(
        _is_object(
            topic=_is_text, partition=_is_count, handler=_is_text, offset=_is_count, count=_is_count, seconds=_is_count
        )
    ),
    "batches": _is_map(_is_object(size=_is_count, why=_is_text)),
    "behind": _is_list(_is_object(topic=_is_text, partition=_is_count, count=_is_count, since=is_time)),
    "unaccounted": _is_list(
        _is_object(topic=_is_text, partition=_is_count, handler=_is_text, count=_is_count, since=is_time)
    ),
    "oldest": _is_list(_is_object(topic=_is_text, handler=_is_text, seconds=_is_count)),
    "running": _is_list(_is_object(handler=_is_text, record=_is_text, pid=_is_count, seconds=_is_count)),
    "backlog_growth": _is_map(_is_object(deliveries=_is_count, seconds=_is_count, rate=_is_number, since=is_time)),
    "costs": _is_map(_is_count),
    "host": _is_text,
    "clock_skew": lambda value: value is None or _is_number(value),
    "clock_skew_since": lambda value: value is None or is_time(value),
    "backlog": _is_map(_is_map(_is_object(deliveries=_is_count))),
}
#: The fields that readers require, with their defaults.
_NEEDED: Final[Mapping[MemberKind, Mapping[str, Any]]] = {
    "bridges": {"versions": {}, "assigned": [], "paused": {}, "obstacles": []},
    "workers": {"versions": {}, "handlers": [], "processes": 1},
    "recorders": {},
}
