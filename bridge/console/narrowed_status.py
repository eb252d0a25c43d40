"""The group's status as an account with a scope sees it: its topics alone, with what is known to be of them (pure).

Each field is copied by name, so a new field stays out until it has a line here.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final

from bridge.console.status_cache import BackgroundCache, GroupStatus, StatusData
from bridge.deadletters.model.letter_scope import LetterScope
from bridge.handler_routes import Handler, Routes

#: The reason of a bridge that reads nothing: its own words may name other topics.
HELD: Final = "the bridge reads nothing: `bridge status` says why"


@dataclass(frozen=True)
class ScopedView:
    """The topics and handlers of a group that an account sees.

    Parameters:
        routes: of the whole group.
    """

    scope: LetterScope
    group: str
    routes: Routes

    def covers(self, topic: str) -> bool:
        """Return whether the account sees a topic of the group."""
        return self.scope.covers(topic, self.group)

    def covers_whole(self, handler: Handler) -> bool:
        """Return whether the account sees all topics of a handler: the handler's own state is about all of them."""
        return all(map(self.covers, handler.topics))

    @property
    def seen(self) -> dict[str, Handler]:
        """Return the handlers that have a topic of the account."""
        return {handler.name: handler for handler in self.routes if any(map(self.covers, handler.topics))}

    @property
    def whole(self) -> frozenset[str]:
        """Return the names of the handlers that have no other topics."""
        return frozenset(handler.name for handler in self.routes if self.covers_whole(handler))

    def narrow(self, status: StatusData) -> dict[str, Any]:
        """Return the data of `bridge status --json` of the account's topics."""
        whole, kept = self.whole, [self._is_own_problem(each) for each in status["problem_values"]]
        own: dict[str, Any] = {
            "group": status.get("group", self.group),
            "problems": [*compress(status["problems"], kept)],
            "problem_values": [*compress(status["problem_values"], kept)],
            "unanswered": status.get("unanswered", []),
        }
        fields: dict[str, Callable[[Any], Any]] = {
            **dict.fromkeys(("oldest", "halted_handlers", "counts", "unreadable"), self._keep_own_rows),
            "parked": lambda rows: _keep(rows, lambda each: self.covers(each["source"])),
            **dict.fromkeys(("topics", "halted"), lambda named: _keep_named(named, self.covers)),
            "policies": lambda named: _keep_named(named, whole.__contains__),
            **dict.fromkeys(("breakers", "limits"), self._keep_own_terms),
            "queues": lambda named: _keep_named(named, self._is_own_queue),
            "bridges": lambda named: _map_values(named, self._narrow_bridge),
            "workers": self._narrow_workers,
        }
        return own | {name: narrow(status[name]) for name, narrow in fields.items() if name in status}

    def _keep_own_rows(self, rows: Iterable[Any] | None) -> list[Any] | None:
        return _keep(rows, lambda each: self.covers(each["topic"]))

    def _keep_own_terms(self, named: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the circuit breakers or limits of handlers that have no other topics."""
        whole = self.whole
        return _keep_valued(named, lambda each: _is_of(each.get("handlers"), whole))

    def _is_own_problem(self, values: Mapping[str, Any]) -> bool:
        topic, handler = values["topic"], values["handler"]
        is_own = handler in self.whole or (topic is not None and self.covers(topic))
        return is_own and not any(map(_build_word(values["sentence"]), self._list_others()))

    def _list_others(self) -> set[str]:
        """Return the names of topics and handlers that the account does not see."""
        seen = self.seen
        return {each for each in self.routes.topics if not self.covers(each)} | {
            handler.name for handler in self.routes if handler.name not in seen
        }

    def _is_own_queue(self, name: str) -> bool:
        return all(map(self.covers_whole, (handler for handler in self.routes if handler.queue == name)))

    def _narrow_bridge(self, state: Mapping[str, Any]) -> dict[str, Any]:
        def of_partition(place: str) -> bool:
            return self.covers(place.rpartition("-")[0])

        own: dict[str, Any] = {name: state[name] for name in ("started", "version") if name in state}
        own["topics"] = _keep(state.get("topics", ()), self.covers)
        own["assigned"] = _keep(state.get("assigned", ()), of_partition)
        for name in ("paused", "paused_since"):
            own[name] = _keep_named(state.get(name, {}), of_partition)
        own["batches"] = _keep_named(state.get("batches", {}), self.whole.__contains__)
        if state.get("obstacles"):
            own["obstacles"] = [HELD]
        return own

    def _narrow_workers(self, workers: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if workers is None:
            return None
        seen, whole = self.seen, self.whole
        queues = {handler.queue for handler in seen.values()}
        found = {}
        for name, state in workers.items():
            own: dict[str, Any] = {each: state[each] for each in ("started", "processes", "version") if each in state}
            own["queues"] = _keep(state["queues"], queues.__contains__)
            own["handlers"] = _keep(state.get("handlers", ()), seen.__contains__)
            own["handler_versions"] = _keep_named(state.get("handler_versions", {}), seen.__contains__)
            holds = state.get("holds") or {}
            own["holds"] = {queue: _keep_named(holds[queue], whole.__contains__) for queue in holds if queue in queues}
            if own["queues"]:
                found[name] = own
        return found


def _keep(values: Iterable[Any] | None, is_own: Callable[[Any], bool]) -> list[Any] | None:
    return None if values is None else [each for each in values if is_own(each)]


def _keep_named(values: Mapping[str, Any] | None, is_own: Callable[[str], bool]) -> dict[str, Any] | None:
    return None if values is None else {name: value for name, value in values.items() if is_own(name)}


def _keep_valued(values: Mapping[str, Any] | None, is_own: Callable[[Any], bool]) -> dict[str, Any] | None:
    return None if values is None else {name: value for name, value in values.items() if is_own(value)}


def _map_values(values: Mapping[str, Any] | None, change: Callable[[Any], Any]) -> dict[str, Any] | None:
    return None if values is None else {name: change(value) for name, value in values.items()}


def _is_of(handlers: Collection[str] | None, whole: Collection[str]) -> bool:
    return bool(handlers) and all(handler in whole for handler in handlers or ())


def _build_word(text: str) -> Callable[[str], bool]:
    return lambda name: re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None


@dataclass
class NarrowedStatusCache:
    """The status of the group for an account with a scope, from the cache that all accounts share."""

    shared: BackgroundCache[GroupStatus]
    view: ScopedView
    _last: tuple[GroupStatus, GroupStatus] | None = field(default=None, init=False, repr=False)

    def read(self, within: float | None = None) -> GroupStatus | None:
        """Return the last status, narrowed; `None`: there is none."""
        found = self.shared.read(within)
        if found is None:
            return None
        if self._last is None or self._last[0] is not found:
            self._last = found, replace(found, status=self.view.narrow(found.status))
        return self._last[1]

    def forget(self) -> None:
        """Drop the shared answer, after somebody has changed something."""
        self.shared.forget()
