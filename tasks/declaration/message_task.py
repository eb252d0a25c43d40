"""The base class of tasks that handle messages, and the current run, which a handler's calls to its task need."""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, Generic, Literal

from celery import Task

from bridge.formats.delivery import Message
from bridge.settings.installed_versions import find_handlers_version
from tasks.declaration.bulk_messages import BulkCall
from tasks.declaration.celery_defaults import DeliveryTask, P, R_co
from tasks.declaration.unique_name import UniqueName
from tasks.errors import RetryAsked
from tasks.policy.breaker_options import Breaker
from tasks.policy.limit_options import Limit
from tasks.policy.policy_override import PolicyOverrides
from tasks.policy.retry_policy import RetryPolicy

#: Seconds after which the rest of a batch goes back: with an automatic size, and with a given one.
AUTO_SECONDS: Final = 0.5
GIVEN_SECONDS: Final = 30.0


class MessageTask(DeliveryTask[P, R_co], Generic[P, R_co]):
    """A task that handles messages: the attributes and methods that the code that runs it uses."""

    abstract = True

    #: The policy that the code declares; `tasks.policy.effective_decisions` has the changes made at run time.
    policy: RetryPolicy = RetryPolicy()
    #: The policy options that the code declares.
    declared: Mapping[str, Any] = MappingProxyType({})
    source_topics: tuple[str, ...] = ()
    #: Other names of the same function: earlier names, or second ones.
    other_names: tuple[str, ...] = ()
    #: How many deliveries one Celery task may carry; "auto": as many as take about 50 ms.
    batch: int | Literal["auto"] = "auto"
    #: The most messages that one call of the handler takes; `None`: it takes one, and no list.
    bulk: int | None = None
    #: Seconds after which the rest of a batch goes back to the queue as a batch of its own.
    batch_seconds: float = AUTO_SECONDS

    #: How many of its deliveries a process runs at once, if it is `async def`; "auto": as many as really do more.
    concurrency: int | Literal["auto"] = 1

    @property
    def changing(self) -> PolicyOverrides:
        """Return the part of the policy that may be changed at run time."""
        return PolicyOverrides(self.name, self.declared)

    #: The circuit breaker, and the names of its gates (bridge/formats/gate_names.py).
    breaker: Breaker | None = None
    needs: tuple[str, ...] = ()
    #: How its messages are named if a second one with the same name is not to run; `None`: they all run.
    unique: UniqueName | None = None
    #: The limit that it shares with other handlers and all workers.
    limit: Limit | None = None

    @property
    def version(self) -> str:
        """Return the version of the handler's code; empty if unknown."""
        return find_handlers_version(type(self).__module__, os.environ)

    def call(self, message: Message) -> Any:
        """Decode a message, and run the handler's function on it."""
        raise NotImplementedError

    async def call_async(self, message: Message) -> Any:
        """Decode a message, and await the handler's function on it, on the loop that runs."""
        raise NotImplementedError

    def call_bulk(self, call: BulkCall) -> Any:
        """Decode the messages of a call, and run the handler's function on all of them to its end."""
        raise NotImplementedError

    def find_unique_name(self, message: Message) -> bytes | None:
        """Return the name by which a second record with the same message is known; `None`: it has none.

        Raises:
            Exception: as `UniqueName.find`.
        """
        raise NotImplementedError


class HandlerRun:
    """The run of a task: it is the current one inside its `with` block.

    Attributes:
        failures: the number of earlier runs of this delivery that have spent a retry.
        group: the consumer group of the delivery.
        asked: the retry that `self.retry(throw=False)` asked for, until the handler returns.
    """

    __slots__ = ("_before", "_request", "asked", "failures", "group")

    def __init__(self, task: Task, failures: int = 0, group: str = "") -> None:  # type: ignore[type-arg]
        self._request = task.request
        self.failures, self.group = failures, group
        self.asked: RetryAsked | None = None

    def begin(self, failures: int) -> None:
        """Note that the next run begins."""
        self.failures, self.asked = failures, None

    def ask_retry(self, asked: RetryAsked) -> None:
        """Note the retry that the handler asked for."""
        self.asked = asked

    @classmethod
    def find_current(cls, task: Task) -> "HandlerRun | None":  # type: ignore[type-arg]
        """Return the current run of a task; `None` if the task is called directly, or its run has not begun."""
        run = _current.get()
        # A task that the handler calls has a request of its own, even if it is the same task.
        return run if run is not None and run._request is task.request else None

    def __enter__(self) -> "HandlerRun":
        self._before = _current.get()
        _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.set(self._before)


_current: Final[ContextVar[HandlerRun | None]] = ContextVar("run", default=None)
