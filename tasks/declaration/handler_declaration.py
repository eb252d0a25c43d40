"""The declaration of a handler: `@handler` makes a function and its options a Celery task, and refuses at import a
function that can never run.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from celery import Celery, Task
from celery.app.annotations import resolve_all
from celery.local import Proxy

from bridge.formats.delivery import Message
from bridge.kafka.topic_names import topic_fault
from tasks.declaration.bulk_messages import Messages
from tasks.declaration.celery_defaults import make_quorum_queue
from tasks.declaration.handler_options import (
    REQUIRED_OPTIONS,
    check_limit_options,
    check_option_names,
    take_batch_options,
    take_concurrency,
    take_policy_options,
)
from tasks.declaration.handler_task import HandlerTask, guard_hooks
from tasks.declaration.message_task import GIVEN_SECONDS
from tasks.declaration.unique_name import UniqueName, check_named_field, make_unique_name
from tasks.declaration.value_codec import guard_decoder, make_decode_steps
from tasks.errors import HandlerError
from tasks.policy.breaker_options import Breaker
from tasks.policy.limit_options import Limit
from tasks.policy.retry_policy import RETRY_OPTIONS, make_policy

_Function = Callable[..., Any]


def declare_handler(app: Celery, topics: Iterable[str], options: Mapping[str, Any]) -> Callable[[_Function], Any]:
    """Return the decorator `@handler`; see `tasks.declaration.handler_task`."""
    names = tuple(topics)
    _check_topics(names)

    def decorate(function: _Function) -> Any:
        return _make_handler(app, names, function, dict(options))

    return decorate


def _check_topics(names: tuple[object, ...]) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise HandlerError(f'@handler takes the names of topics: @handler("orders"); it was given {names!r}.')
    for name in names:
        if fault := topic_fault(str(name)):
            raise HandlerError(f"@handler: {fault}")


def _make_handler(app: Celery, topics: tuple[str, ...], function: _Function, options: dict[str, Any]) -> Any:
    _refuse_no_function(function)
    name = options.pop("name", None) or app.gen_task_name(function.__name__, function.__module__)
    base = options.pop("base", None)
    aliases = _aliases(name, options.pop("aliases", ()))
    _refuse_generator(name, function)
    check_option_names(name, options, base)
    check_limit_options(name, options)
    for known in (name, *aliases):
        _refuse_second(app, known, function)
    needs = _needs(app, name, options.pop("breaker", None))
    limit = _limit(app, name, options)
    unique = _unique(name, aliases, options)
    made = {**_attributes(name, function, options, base, unique), **needs, "limit": limit}
    declare_queue(app, options.get("queue"))
    names = (name, *aliases)
    for alias in aliases:
        # Deliveries in flight under an old name run, and are settled, under that name: its task has no topics.
        _register(app, alias, function, base, {**made, "other_names": tuple(set(names) - {alias})})
    return _register(app, name, function, base, {**made, "source_topics": topics, "other_names": aliases})


def _attributes(
    name: str, function: _Function, options: dict[str, Any], base: type | None, unique: UniqueName | None
) -> dict[str, Any]:
    """Return the attributes of the task: Celery's options, and those that this project's options become."""
    declared = take_policy_options(options, base)
    policy = make_policy(name, declared)
    concurrency = take_concurrency(name, options, is_async=inspect.iscoroutinefunction(function))
    batch, bulk = take_batch_options(name, options)
    if batch != "auto":
        options.setdefault("batch_seconds", GIVEN_SECONDS)
    parameters = read_parameters(name, function, bound=bool(options.get("bind")), bulk=bulk is not None)
    annotation = read_annotation(name, function, parameters.value)
    if bulk is not None:
        annotation = _take_element(name, annotation)
    codec, upgrade = options.pop("codec", None), options.pop("upgrade", None)
    if unique is not None and codec is None and upgrade is None:
        check_named_field(name, unique, annotation)
    try:
        way = make_decode_steps(codec, annotation, upgrade)
    except HandlerError as error:
        raise HandlerError(f"{name}: {error}") from None
    return {
        **options,
        "throws": (*HandlerTask.throws, *options.get("throws", ())),
        "max_retries": policy.retries,
        # Celery would wrap `run` for a base class of the user's that sets it.
        "autoretry_for": (),
        "batch": batch,
        "concurrency": concurrency,
        "bulk": bulk,
        "policy": policy,
        "unique": unique,
        "declared": declared if policy.delays is None else {**declared, "retry_delays": policy.delays},
        "codec": codec if codec is None or isinstance(codec, type) else staticmethod(codec),
        "way": way,
        "decode_record": staticmethod(guard_decoder(way)),
        "value_wanted": parameters.value is not None,
        "message_name": parameters.message,
        "message_first": parameters.message_first,
    }


def _needs(app: Celery, name: str, breaker: Any) -> dict[str, Any]:
    """Return the task's attributes for its circuit breaker."""
    if breaker is None:
        return {}
    if not isinstance(breaker, Breaker):
        raise HandlerError(f"{name}: breaker takes a Breaker; it was given {breaker!r}.")
    others = [other for task in app.tasks.values() if (other := getattr(task, "breaker", None)) is not None]
    if fault := next(filter(None, map(breaker.fault_beside, others)), ""):
        raise HandlerError(f"{name}: {fault}")
    return {"breaker": breaker, "needs": (breaker.dependency,)}


def _limit(app: Celery, name: str, options: dict[str, Any]) -> Limit | None:
    """Remove the option `limit`, and return it."""
    limit = options.pop("limit", None)
    if limit is None:
        return None
    if not isinstance(limit, Limit):
        raise HandlerError(f'{name}: limit takes a Limit: Limit("bank", per_second=50); it was given {limit!r}.')
    if (bulk := options.get("bulk")) is not None:
        raise HandlerError(
            f"{name}: limit counts the runs of one message, bulk={bulk} gives a run many: leave one out."
        )
    others = [other for task in app.tasks.values() if (other := getattr(task, "limit", None)) is not None]
    if fault := next(filter(None, map(limit.fault_beside, others)), ""):
        raise HandlerError(f"{name}: {fault}")
    return limit


def _unique(name: str, aliases: tuple[str, ...], options: dict[str, Any]) -> UniqueName | None:
    """Remove the options of unique names, and return how its messages are named."""
    by, seconds = options.pop("unique_by", None), options.pop("unique_for", None)
    if by is not None and (bulk := options.get("bulk")) is not None:
        raise HandlerError(
            f"{name}: unique_by claims a name for the run of one message, bulk={bulk} gives a run many: leave one out."
        )
    # A renamed handler still knows what was done under its old name.
    return make_unique_name(name, (*aliases, name)[0], by, seconds, options.get("codec"))


def _register(app: Celery, name: str, function: _Function, base: type | None, attributes: dict[str, Any]) -> Any:
    kind = HandlerTask if base is None else _mix_base(name, base)
    make: Any = app.task
    task = make(name=name, base=kind, lazy=False, shared=False, **attributes)(function)
    _refuse_annotations(task)
    guard_hooks(task)
    return task


def _refuse_annotations(task: Any) -> None:
    """Refuse `task_annotations` that change retries: Celery applies them too late for the policy."""
    annotations: Any = resolve_all(task.app.annotations, task)
    for annotation in annotations:
        for option, value in annotation.items():
            needed, why = REQUIRED_OPTIONS.get(option, (value, ""))
            if option in RETRY_OPTIONS or option == "max_retries":
                raise HandlerError(f"{task.name}: task_annotations sets {option}: say it at @handler.")
            if value not in (needed, None):
                raise HandlerError(f"{task.name}: task_annotations sets {option} to {value!r}: {why}.")


def _aliases(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise HandlerError(f"{name}: aliases takes a sequence of names; it was given {given!r}.")
    aliases = tuple(given)
    if not all(isinstance(alias, str) and alias and alias != name for alias in aliases):
        raise HandlerError(f"{name}: aliases takes names that the handler had before; it was given {given!r}.")
    return aliases


def _refuse_no_function(given: Any) -> None:
    """Refuse anything that is not a named function: a class, another task, a lambda."""
    shown = getattr(given, "__qualname__", None) or repr(given)
    if inspect.isclass(given):
        why = f"{shown} is a class, which a delivery would only construct: declare a function that calls it."
    elif isinstance(given, Task | Proxy):
        why = f"{getattr(given, 'name', shown)} is a Celery task already: put @handler in place of the other decorator."
    elif getattr(given, "__name__", "<lambda>") == "<lambda>" or not callable(given):
        why = f"{shown} has no name: write it as a function, with def."
    else:
        return
    raise HandlerError(f"@handler takes a function: {why}")


def _refuse_generator(name: str, function: _Function) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerError(
            f"{name}: it yields, which makes it a generator: called, it runs nothing of itself. A handler returns."
        )


def declare_queue(app: Celery, queue: Any) -> None:
    """Declare a handler's own queue for the bridge and all workers, whatever `task_create_missing_queues` says.

    A worker that is started without `-Q` consumes it.
    """
    if queue is None:
        return
    queues: Any = app.amqp.queues
    if getattr(queue, "name", queue) in queues:
        return
    # Where `-Q` has chosen already (modules of `-I` are imported after that), its choice stands.
    add = queues.select_add if queues._consume_from is None else queues.add
    if isinstance(queue, str):
        quorum = app.conf.task_default_queue_type == "quorum"
        queue = make_quorum_queue(queue) if quorum else queues.new_missing(queue)
    add(queue)


def _refuse_second(app: Celery, name: str, function: _Function) -> None:
    """Refuse a second handler with the same name: Celery would silently ignore its function."""
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


def _mix_base(name: str, base: type[Any]) -> type[Any]:
    """Return a task class with the user's base class over the handler's."""
    if issubclass(base, HandlerTask):
        return base
    if any("__call__" in vars(kind) for kind in base.__mro__[: base.__mro__.index(Task)]):
        raise HandlerError(
            f"{name}: base={base.__name__} has a __call__ of its own, which a delivery does not go through: "
            "use before_start and after_return, or a decorator under @handler."
        )
    return type(f"Handler{base.__name__}", (base, HandlerTask), {"abstract": True, "__call__": HandlerTask.__call__})


@dataclass(frozen=True, slots=True)
class HandlerParameters:
    """The parameters of a handler's function.

    Attributes:
        value: the parameter for the value, if there is one.
        message: the name of the parameter for the message, if there is one.
        message_first: whether the message comes before the value.
    """

    value: inspect.Parameter | None
    message: str | None
    message_first: bool


def read_parameters(name: str, function: Callable[..., Any], *, bound: bool, bulk: bool = False) -> HandlerParameters:
    """Read the parameters of a handler's function.

    Parameters:
        bulk: whether it takes a list of values and `Messages`, in place of a value and a `Message`.

    Raises:
        HandlerError: it has a parameter that nothing fills, or none for the value or the message.
    """
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    value, message = _split_parameters(name, function, parameters, bulk)
    if value is None and message is None:
        one = "a handler takes the value, the message, or both"
        several = "a bulk handler takes the values, the messages, or both"
        raise HandlerError(
            f"{name}: {several if bulk else one}; this function has a parameter for neither"
            + (": with bind=True the first is the task: def name(self, value)." if bound else ".")
        )
    return HandlerParameters(value, message, bool(parameters) and value is not None and message == parameters[0].name)


def read_annotation(name: str, function: Callable[..., Any], parameter: inspect.Parameter | None) -> Any:
    """Return the type that a parameter is annotated with, or None.

    Raises:
        HandlerError: the annotation is a string that cannot be resolved.
    """
    annotation = inspect.Parameter.empty if parameter is None else parameter.annotation
    if annotation is inspect.Parameter.empty:
        return None
    if not isinstance(annotation, str):
        return annotation
    try:
        return _resolve(function, annotation)
    except NameError as error:
        raise HandlerError(
            f"{name}: the annotation {annotation!r} cannot be read ({error}): import it outside "
            "TYPE_CHECKING, for the worker validates with it."
        ) from error


def _resolve(function: Callable[..., Any], annotation: str) -> Any:
    """Return what an annotation of a function names; raise `NameError` if there is no such name."""
    probe = type("Probe", (), {"__annotations__": {"value": annotation}})
    return typing.get_type_hints(probe, function.__globals__, inspect.getclosurevars(function).nonlocals)["value"]


def _take_element(name: str, annotation: Any) -> Any:
    """Return the type of one value, from the annotation of a bulk handler's list.

    Raises:
        HandlerError: the annotation is of no list.
    """
    if annotation in (None, Any) or annotation in _LISTS:
        return None
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if parts == (Message,):
        raise HandlerError(f"{name}: a bulk handler takes its messages as Messages, and not as a list of Message.")
    if origin not in _LISTS or len(parts) != 1:
        shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        raise HandlerError(f"{name}: a bulk handler is given a list of values: annotate list[...], and not {shown}.")
    return parts[0]


#: What a list of values may be annotated with.
_LISTS: Final = (list, Sequence, Collection, Iterable)

#: By whether a handler is a bulk handler: what its parameter for messages is called and annotated with.
_MESSAGE_PARAMETERS: Final[Mapping[bool, tuple[str, type]]] = {
    False: ("message", Message),
    True: ("messages", Messages),
}


def _split_parameters(
    name: str, function: Callable[..., Any], parameters: list[inspect.Parameter], bulk: bool
) -> tuple[inspect.Parameter | None, str | None]:
    value: inspect.Parameter | None = None
    message: str | None = None
    called, kind = _MESSAGE_PARAMETERS[bulk]
    _, other = _MESSAGE_PARAMETERS[not bulk]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            value = value or parameter
            continue
        if _is_annotated(function, parameter, other):
            needed = (
                "a bulk handler takes Messages, and not Message" if bulk else "Messages are given to a bulk handler"
            )
            raise HandlerError(f"{name}: {needed}: see {parameter.name!r}, and the option bulk.")
        by_annotation = _is_annotated(function, parameter, kind)
        if message is None and (by_annotation or (value is not None and parameter.name == called)):
            message = parameter.name
        elif value is None and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            value = parameter
        elif parameter.default is inspect.Parameter.empty:
            raise HandlerError(
                f"{name}: a handler takes the value and, if it asks for it, `{called}`; "
                f"nothing is there to fill {parameter.name!r}."
            )
    return value, message


def _is_annotated(function: Callable[..., Any], parameter: inspect.Parameter, kind: type) -> bool:
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation is kind
    try:
        # A class of the user's may have the same name.
        return _resolve(function, annotation) is kind
    except Exception:
        # Only a type checker imports it.
        return annotation in (kind.__name__, f"tasks.{kind.__name__}")
