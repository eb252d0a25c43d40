"""The routes from topics to handlers, and how long each handler waits, read off the tasks of the Celery app."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from celery import Celery
from celery.exceptions import QueueNotFound

from bridge.errors import BridgeError
from bridge.formats.group_decision import PolicyData, read_option_values


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler as the bridge needs to know it.

    Attributes:
        name: the Celery task's name.
        topics: the topics whose messages it handles.
        queue: the Celery queue its deliveries go to.
        batch: how many deliveries one Celery task may carry; "auto": that is found out.
        breaker: what it needs (`tasks.Breaker`), if it says so.
        one_by_one: why that is one whatever is found out, where it is.
        longest_wait: seconds; the longest delay or hard time limit that one of its messages may see.
        retry_delays: its own list of delays, if it has one.
        longest_delay: seconds; no retry of its own policy waits longer.
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

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of what it needs."""
        return () if self.breaker is None else (str(self.breaker.dependency),)


@dataclass(frozen=True, slots=True)
class Routes:
    """Topic → handlers, in the order in which they were declared."""

    handlers: Mapping[str, Handler]

    @property
    def topics(self) -> list[str]:
        """Every topic that some handler names, sorted."""
        return sorted({topic for handler in self for topic in handler.topics})

    @property
    def queues(self) -> list[str]:
        """Every queue that some handler's deliveries go to, sorted."""
        return sorted({handler.queue for handler in self})

    @property
    def terms(self) -> dict[str, Any]:
        """What handlers need, and when each is held to be down."""
        return {h.breaker.dependency: h.breaker.terms for h in self if h.breaker is not None}

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.handlers.values())

    def of(self, topic: str) -> tuple[Handler, ...]:
        """The handlers of a topic."""
        return tuple(handler for handler in self if topic in handler.topics)

    def topics_into(self, queue: str) -> frozenset[str]:
        """The topics of which some handler's deliveries go to that queue."""
        return frozenset(topic for handler in self if handler.queue == queue for topic in handler.topics)


def find_routes(app: Celery) -> tuple[Routes, list[str]]:
    """The handlers that can be routed, and what is wrong with the others, a sentence each."""
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
            )
    return Routes(found), faults


def changed_handlers(app: Celery, routes: Routes, policies: Mapping[str, PolicyData]) -> list[Handler]:
    """The handlers whose policy people have changed, as they wait by it; what is not in force is left out."""
    found = []
    for name, data in policies.items():
        if name in routes.handlers:
            task: Any = app.tasks[name]
            with suppress(BridgeError):
                found.append(apply_waits(routes.handlers[name], task.changing.policy(read_option_values(data))))
    return found


def apply_waits(handler: Handler, policy: Any) -> Handler:
    """A handler as it waits by another policy than its code's."""
    delays = None if policy.delays is None else tuple(policy.delays)
    return replace(handler, retry_delays=delays, longest_delay=policy.longest_delay)


def queue_of(app: Celery, task: Any) -> str:
    """The queue to which Celery's own router would send a task."""
    options = app.amqp.router.route(dict(task._get_exec_options()), task.name, (), {}, task)
    queue = options.get("queue")
    if queue is None:
        return str(options.get("routing_key") or app.conf.task_default_queue)
    return str(getattr(queue, "name", queue))
