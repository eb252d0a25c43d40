"""What a handler's function asks for: the value, the message, or both; read off its parameters."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.records.message import Message
from tasks.errors import HandlerError


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a handler's function is called with.

    Attributes:
        value: the parameter for the value, if there is one.
        message: the name of the one for the message, if there is one.
        message_first: whether the message stands before the value.
    """

    value: inspect.Parameter | None
    message: str | None
    message_first: bool


def parameters_of(name: str, function: Callable[..., Any], *, bound: bool) -> Parameters:
    """Read the parameters of a handler's function.

    Raises:
        HandlerError: it has one that nothing is there to fill, or none that takes what a record holds.
    """
    found = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    value, message = _split(name, found)
    if value is None and message is None:
        raise HandlerError(
            f"{name}: a handler takes the value, the message, or both; this function has a parameter for neither"
            + (": with bind=True the first is the task: def name(self, value)." if bound else ".")
        )
    return Parameters(value, message, bool(found) and value is not None and message == found[0].name)


def annotation_of(name: str, function: Callable[..., Any], parameter: inspect.Parameter | None) -> Any:
    """The type that a parameter is annotated with, or None.

    Raises:
        HandlerError: it is written as text that cannot be read.
    """
    annotation = inspect.Parameter.empty if parameter is None else parameter.annotation
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


def _split(name: str, parameters: list[inspect.Parameter]) -> tuple[inspect.Parameter | None, str | None]:
    value: inspect.Parameter | None = None
    message: str | None = None
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            value = value or parameter
            continue
        by_annotation = parameter.annotation is Message or parameter.annotation in ("Message", "tasks.Message")
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
