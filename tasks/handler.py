"""`@handler`, and the task class behind it.

The life of a failing message, told once:

1. The bridge hands it off as a Celery message; its record travels in one header, as bytes.
2. The worker's child decodes it and calls the handler. An error goes to `tasks.policy`, which decides.
3. A retry is Celery's own: the message is sent again with a countdown, then the first one is acknowledged.
4. A dead letter is published, Kafka acknowledges it, and only then is the Celery message acknowledged. As
   long as Kafka cannot take it, the message is sent again, marked as dead: the handler does not run again.
5. Whatever breaks on the way, the Celery message stays in the broker.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Iterable
from typing import Any

from celery import Celery, Task
from celery.exceptions import Retry

from bridge.message import HEADER, Message
from bridge.topics import topic_fault
from tasks import execution
from tasks.codec import Decode, decoder
from tasks.defaults import DeliveryTask
from tasks.errors import DeadLettered, HandlerError, RetryAsked
from tasks.policy import Errors, Policy

#: Options of Celery's autoretry that the policy takes over, so that they act once.
_RETRY_OPTIONS = (
    "autoretry_for",
    "dont_autoretry_for",
    "retry_backoff",
    "retry_backoff_max",
    "retry_jitter",
    "retry_kwargs",
)


class HandlerTask(DeliveryTask):
    """A Celery task that handles the messages of one or more topics.

    Called with a record (by the bridge) it decodes, runs and settles it. Called as a plain Celery task
    (`charge.delay(order)`) or as a function (`charge(order)`) it runs the function with what it is given.
    """

    abstract = True
    Request = "tasks.request:Request"
    # The arguments of a delivery are made from its record; there are none to check when it is sent.
    typing = False
    max_retries = 5
    throws = (DeadLettered,)

    source_topics: tuple[str, ...] = ()
    batch: int = 1
    #: Seconds after which what is left of a batch goes back to the queue as one of its own.
    batch_seconds: float = 30
    policy: Policy = Policy()
    decode: Decode = staticmethod(decoder(None))
    value_wanted: bool = True
    message_name: str | None = None
    message_first: bool = False

    @property
    def longest_wait(self) -> float:
        """Seconds; the longest delay or hard time limit that one of its messages may see."""
        return max(self.policy.longest_delay, self.time_limit or self.app.conf.task_time_limit or 0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        header = (self.request.headers or {}).get(HEADER)
        if header is None:
            return self.run(*args, **kwargs)
        return execution.execute(self, header)

    def call(self, message: Message) -> Any:
        """Decode a message and run the handler's function on it."""
        value = self.decode(message.value)
        if self.message_first:
            return self.run(message, value)
        named = {} if self.message_name is None else {self.message_name: message}
        return self.run(value, **named) if self.value_wanted else self.run(**named)

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Exception | None = None,
        throw: bool = True,
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Retry:
        """Celery's `Task.retry`, for a handler that decides itself; with none left it ends as dead letter."""
        if self.request.called_directly or HEADER not in (self.request.headers or {}):
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if args is not None or kwargs is not None:
            raise HandlerError(f"{self.name}: self.retry() of a record takes no args: its message is what it is.")
        delay = countdown
        if eta is not None:
            delay = max(0.0, (eta - self.app.now()).total_seconds())
        if delay is None:
            delay = self.policy.delay(execution.failures_of(self))
        limit = self.max_retries if max_retries is None else max_retries
        asked = RetryAsked(delay, limit, exc or sys.exc_info()[1])
        if throw:
            raise asked
        execution.remember(self, asked)
        return asked


def declare(app: Celery, topics: Iterable[str], options: dict[str, Any]) -> Callable[[Callable[..., Any]], HandlerTask]:
    """What `@handler` does; see `tasks.handler`."""
    names = tuple(topics)
    _check_topics(names)

    def decorate(function: Callable[..., Any]) -> HandlerTask:
        return _make_task(app, names, function, dict(options))

    return decorate


def _check_topics(names: tuple[object, ...]) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise HandlerError(f'@handler takes the names of topics: @handler("orders"); it was given {names!r}.')
    for name in names:
        if fault := topic_fault(str(name)):
            raise HandlerError(f"@handler: {fault}")


def _make_task(
    app: Celery, topics: tuple[str, ...], function: Callable[..., Any], options: dict[str, Any]
) -> HandlerTask:
    name = options.get("name") or app.gen_task_name(function.__name__, function.__module__)
    _refuse_second(app, name, function)
    policy = _policy(name, options)
    batch = options.pop("batch", 1)
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= 10_000:
        raise HandlerError(f"{name}: batch takes a whole number from 1 to 10,000; it was given {batch!r}.")
    parameters = _parameters(function, bound=bool(options.get("bind")))
    value, message_name = _split(name, parameters)
    annotation = None if value is None else _annotation(name, function, value)
    try:
        decode = decoder(options.pop("codec", None), annotation)
    except HandlerError as error:
        raise HandlerError(f"{name}: {error}") from None
    declare_queue(app, options.get("queue"))
    base = options.pop("base", None)
    options["throws"] = (*HandlerTask.throws, *options.get("throws", ()))
    options["max_retries"] = policy.retries
    task: HandlerTask = app.task(  # type: ignore[no-untyped-call]
        base=HandlerTask if base is None else _with(base),
        lazy=False,
        shared=False,
        source_topics=topics,
        batch=batch,
        policy=policy,
        decode=staticmethod(decode),
        value_wanted=value is not None,
        message_name=message_name,
        message_first=message_name == parameters[0].name and value is not None if parameters else False,
        **options,
    )(function)
    return task


def declare_queue(app: Celery, queue: Any) -> None:
    """A handler's own queue exists for the bridge and for every worker, whatever `task_create_missing_queues` says,
    and a worker that is started without `-Q` consumes it.
    """
    if queue is None:
        return
    queues: Any = app.amqp.queues
    if getattr(queue, "name", queue) in queues:
        return
    # Where `-Q` has chosen already (modules of `-I` are imported after that), its choice stands.
    add = queues.select_add if queues._consume_from is None else queues.add
    add(queues.new_missing(queue) if isinstance(queue, str) else queue)


def _refuse_second(app: Celery, name: str, function: Callable[..., Any]) -> None:
    """Celery takes the second task of a name for the first, in silence: its function would never run."""
    known: Any = app.tasks.get(name)
    if known is not None and getattr(known, "__wrapped__", None) is not None:
        code = getattr(known.__wrapped__, "__code__", None)
        if code is None or code.co_filename != function.__code__.co_filename:
            raise HandlerError(f"two handlers are called {name!r}: give one of them another name=.")
        if code.co_firstlineno != function.__code__.co_firstlineno:
            raise HandlerError(
                f"{function.__code__.co_filename} declares {name!r} twice, at lines {code.co_firstlineno} "
                f"and {function.__code__.co_firstlineno}: give one of them another name=."
            )


def _with(base: type[Task]) -> type[HandlerTask]:  # type: ignore[type-arg]
    if issubclass(base, HandlerTask):
        return base
    return type(f"Handler{base.__name__}", (base, HandlerTask), {"abstract": True, "__call__": HandlerTask.__call__})


def _policy(name: str, options: dict[str, Any]) -> Policy:
    given = {key: options.pop(key) for key in _RETRY_OPTIONS if key in options}
    kwargs = given.get("retry_kwargs") or {}
    max_retries = kwargs.get("max_retries", options.pop("max_retries", HandlerTask.max_retries))
    fixed = kwargs.get("countdown", options.get("default_retry_delay"))
    backoff = given.get("retry_backoff", fixed is None)
    if not backoff and fixed is None:
        fixed = Task.default_retry_delay
    listed = options.get("retry_delays") is not None
    try:
        return Policy(
            autoretry_for=_errors(given.get("autoretry_for", (Exception,))),
            dont_autoretry_for=_errors(given.get("dont_autoretry_for", ())),
            dead_letter_for=_errors(options.pop("dead_letter_for", ())),
            stop_for=_errors(options.pop("stop_for", ())),
            max_retries=None if max_retries is None else _seconds(max_retries, "max_retries", whole=True),
            delays=_delays(options.pop("retry_delays", None)),
            fixed_delay=None if backoff else _seconds(fixed, "countdown"),
            backoff=_seconds(backoff, "retry_backoff"),
            backoff_max=_seconds(given.get("retry_backoff_max", 600), "retry_backoff_max", whole=True),
            jitter=bool(given.get("retry_jitter", not listed)),
            give_up_after=_optional_seconds(options.pop("give_up_after", None), "give_up_after"),
        )
    except (TypeError, ValueError) as error:
        raise HandlerError(f"{name}: {error}") from error


def _errors(given: Any) -> Errors:
    kinds = given if isinstance(given, tuple | list | set | frozenset) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"exception classes are wanted; it was given {kind!r}.")
    return tuple(kinds)


def _delays(given: Any) -> tuple[float, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"retry_delays takes a sequence of seconds; it was given {given!r}.")
    return tuple(_seconds(delay, "retry_delays") for delay in given)


def _optional_seconds(given: Any, what: str) -> float | None:
    return None if given is None else _seconds(given, what)


def _seconds(given: Any, what: str, *, whole: bool = False) -> Any:
    if isinstance(given, bool) and what == "retry_backoff":
        return 1
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise ValueError(f"{what} takes numbers from 0 on; it was given {given!r}.")
    if whole and given != int(given):
        raise ValueError(f"{what} takes whole numbers from 0 on; it was given {given!r}.")
    return int(given) if whole else given


def _parameters(function: Callable[..., Any], *, bound: bool) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    return found[1:] if bound else found


def _split(name: str, parameters: list[inspect.Parameter]) -> tuple[inspect.Parameter | None, str | None]:
    """The parameter for the value, and the name of the one for the message."""
    value: inspect.Parameter | None = None
    message: str | None = None
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            value = value or parameter
            continue
        by_annotation = parameter.annotation is Message or parameter.annotation in (
            "Message",
            "tasks.Message",
        )
        if message is None and (by_annotation or (value is not None and parameter.name == "message")):
            message = parameter.name
        elif value is None and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            value = parameter
        elif parameter.default is inspect.Parameter.empty:
            raise HandlerError(
                f"{name}: a handler takes the value and, if it asks for it, `message`; "
                f"nothing is there to fill {parameter.name!r}."
            )
    return value, message


def _annotation(name: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return None
    if not isinstance(annotation, str):
        return annotation
    probe = type("Probe", (), {"__annotations__": {"value": annotation}})
    try:
        return typing.get_type_hints(probe, function.__globals__, inspect.getclosurevars(function).nonlocals)["value"]
    except NameError as error:
        raise HandlerError(
            f"{name}: the annotation {annotation!r} cannot be read ({error}): import it outside "
            "TYPE_CHECKING, for the worker validates with it."
        ) from error
