"""The routes from topics to handlers with their waits, read from the tasks of the Celery app."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from celery import Celery
from celery.exceptions import QueueNotFound
from kombu import Queue

from bridge.errors import BridgeError
from bridge.formats.group_decision import PolicyData, read_option_values


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler as the bridge knows it.

    Attributes:
        name: the Celery task's name.
        topics: the topics whose messages it handles.
        queue: the Celery queue its deliveries go to.
        batch: how many deliveries one Celery task may carry; "auto": the bridge finds out.
        breaker: the circuit breaker of its dependency (`tasks.Breaker`), if it has one.
        one_by_one: why a task may carry only one delivery; empty if it may carry more.
        is_bulk: whether its function takes all deliveries of a task in one call.
        longest_wait: seconds; the longest delay or hard time limit of one of its messages.
        retry_delays: its own list of delays, if it has one.
        longest_delay: seconds; the longest retry delay of its own policy.
        concurrency: how many deliveries a process runs at once; "auto": workers find out.
        limit: the limit that it shares (`tasks.Limit`), if it has one.
        unique_for: seconds for which a message's name is known (`unique_by`); `None`: it names none.
        aliases: the names that it had before.
        reads_schemas: whether its codec asks a schema registry.
    """

    name: str
    topics: tuple[str, ...]
    queue: str
    batch: int | Literal["auto"]
    longest_wait: float
    one_by_one: str = ""
    breaker: Any = None
    retry_delays: tuple[float, ...] | None = None
    longest_delay: float = 0.0
    concurrency: int | Literal["auto"] = 1
    is_bulk: bool = False
    unique_for: float | None = None
    limit: Any = None
    aliases: tuple[str, ...] = ()
    reads_schemas: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the names of its dependencies."""
        return () if self.breaker is None else (str(self.breaker.dependency),)


@dataclass(frozen=True, slots=True)
class Routes:
    """The handlers by name, in the order of their declaration."""

    handlers: Mapping[str, Handler]

    @property
    def topics(self) -> list[str]:
        """Return every topic that some handler names, sorted."""
        return sorted({topic for handler in self for topic in handler.topics})

    @property
    def queues(self) -> list[str]:
        """Return every queue that some handler's deliveries go to, sorted."""
        return sorted({handler.queue for handler in self})

    @property
    def terms(self) -> dict[str, Any]:
        """Return the dependencies of handlers with the terms of their circuit breakers."""
        return {h.breaker.dependency: h.breaker.terms for h in self if h.breaker is not None}

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits that handlers share, by name."""
        return {h.limit.name: h.limit for h in self if h.limit is not None}

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.handlers.values())

    def of(self, topic: str) -> tuple[Handler, ...]:
        """Return the handlers of a topic."""
        return tuple(handler for handler in self if topic in handler.topics)

    def only(self, topics: Iterable[str]) -> "Routes":
        """Return the handlers of these topics, without their other topics."""
        kept = frozenset(topics)
        some = {h.name: replace(h, topics=tuple(topic for topic in h.topics if topic in kept)) for h in self}
        return Routes({name: handler for name, handler in some.items() if handler.topics})

    @property
    def current_names(self) -> dict[str, str]:
        """Return by former name of a handler its current one."""
        return {alias: handler.name for handler in self for alias in handler.aliases}

    def topics_into(self, queue: str) -> frozenset[str]:
        """Return the topics with a handler whose deliveries go to that queue."""
        return frozenset(topic for handler in self if handler.queue == queue for topic in handler.topics)


def find_routes(app: Celery) -> tuple[Routes, list[str]]:
    """Return the routes of all handlers that can be routed, and the faults of the others, a sentence each."""
    tasks: Mapping[str, Any] = app.tasks
    found, faults = {}, []
    for name, task in tasks.items():
        if topics := getattr(task, "source_topics", ()):
            try:
                queue = queue_of(app, task)
            except QueueNotFound as error:
                faults.append(f"{name}: {error.args[0]}: name it there, or as the handler's queue=.")
                continue
            found[name] = Handler(
                name=name,
                topics=tuple(topics),
                queue=queue,
                batch=1 if task.one_by_one else task.batch,
                longest_wait=task.longest_wait,
                one_by_one=task.one_by_one,
                breaker=getattr(task, "breaker", None),
                retry_delays=None if task.policy.delays is None else tuple(task.policy.delays),
                longest_delay=task.policy.longest_delay,
                concurrency=task.concurrency,
                is_bulk=task.bulk is not None,
                limit=getattr(task, "limit", None),
                unique_for=None if (unique := getattr(task, "unique", None)) is None else unique.seconds,
                aliases=tuple(getattr(task, "other_names", ())),
                reads_schemas=getattr(getattr(task, "codec", None), "reads_schemas", False),
            )
    return Routes(found), faults


def changed_handlers(app: Celery, routes: Routes, policies: Mapping[str, PolicyData]) -> list[Handler]:
    """Return the handlers with a changed policy, with its waits; an invalid change is left out."""
    found = []
    for name, data in policies.items():
        if name in routes.handlers:
            task: Any = app.tasks[name]
            with suppress(BridgeError):
                found.append(apply_waits(routes.handlers[name], task.changing.policy(read_option_values(data))))
    return found


def apply_waits(handler: Handler, policy: Any) -> Handler:
    """Return a handler with the waits of another policy than its code's."""
    delays = None if policy.delays is None else tuple(policy.delays)
    return replace(handler, retry_delays=delays, longest_delay=policy.longest_delay)


def queue_of(app: Celery, task: Any) -> str:
    """Return the queue to which Celery's own router would send a task."""
    return find_queue(app, app.amqp.router.route(dict(task._get_exec_options()), task.name, (), {}, task)).name


def find_queue(app: Celery, routed: Mapping[str, Any]) -> Queue:
    """Return the queue of a route of Celery's; a route without one leads to the default queue."""
    queue = routed.get("queue") or app.conf.task_default_queue
    return queue if isinstance(queue, Queue) else app.amqp.queues[queue]
