"""The options of a handler's policy that a person may change at run time: how values are read and validated, the
policy that results, and a forecast of its retries (pure). All changes of a handler are in force, or none.
retry_policy.py (`make_policy`) decides which policy results from options, effective_decisions.py which is in force.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from celery.exceptions import Reject

from bridge.formats.failure import kind_name
from tasks.errors import HandlerError, RetryAsked, RetryLater
from tasks.policy.failure_decision import DeadLetterDelivery, FailureDecision, HaltTopic, RetryDelivery, decide_failure
from tasks.policy.retry_policy import ErrorClasses, RetryPolicy, make_policy
from tasks.policy.retry_when_function import function_name

#: The most retries of a forecast; more count as endless.
FORECAST_LIMIT: Final = 10_000


class RetryForecast(NamedTuple):
    """The forecast of a delivery's retries and end.

    Attributes:
        waits: seconds until each retry begins, from its failure on: what they are on average where they are drawn.
        end: the reason of its dead letter; "halt"; "endless"; "done", where the handler gives it up (`Ignore`); or
            "asked", where each failure says itself what is to become of it (`RetryLater`, `self.retry()`, `Reject`).
        known: whether the error's class is imported here. Of one that is not, nobody knows what it is derived from.
    """

    waits: tuple[float, ...]
    end: str
    known: bool


def forecast_retries(policy: RetryPolicy, error_class: str, real: Callable[[float], float] = float) -> RetryForecast:
    """Return the forecast of a delivery from its first failure on, without `retry_when`.

    Parameters:
        error_class: module and name, as dead letters have it.
        real: seconds after which a retry really starts that is to start after so many.
    """
    error = _imported_error(error_class)
    known = error is not None
    error = error or _stand_in(error_class)
    if isinstance(error, RetryLater | RetryAsked | Reject):
        return RetryForecast((), "asked", known)
    # Drawn evenly from nothing to the whole: half of it.
    part = 0.5 if policy.jitter and (policy.fixed_delay is None or policy.delays is not None) else 1.0
    steady = replace(policy, jitter=False, retry_when=None)
    waits: list[float] = []
    age = 0.0
    while len(waits) < FORECAST_LIMIT:
        decision = decide_failure(steady, error, len(waits), age, real=lambda wait: real(wait * part))
        if not isinstance(decision, RetryDelivery):
            return RetryForecast(tuple(waits), _forecast_end(decision), known)
        waits.append(real(decision.delay * part))
        age += waits[-1]
    return RetryForecast(tuple(waits), "endless", known)


def list_exception_classes(kind: type[BaseException] = BaseException) -> Iterator[type[BaseException]]:
    """Yield every imported exception class."""
    yield kind
    for each in type.__subclasses__(kind):
        yield from list_exception_classes(each)


def _forecast_end(decision: FailureDecision) -> str:
    match decision:
        case DeadLetterDelivery(reason, _):
            return reason
        case HaltTopic():
            return "halt"
    return "done"


def _imported_error(error_class: str) -> BaseException | None:
    """Return an uninitialized error of a class, None if the class is not imported."""
    for kind in list_exception_classes():
        if kind_name(kind) == error_class:
            try:
                return kind.__new__(kind)
            except Exception:
                return None
    return None


def _stand_in(error_class: str) -> BaseException:
    module, _, name = error_class.rpartition(".")
    kind = type(name or "Unknown", (Exception,), {"__module__": module or "builtins"})
    found: BaseException = kind()
    return found


#: Options of classes of exceptions.
CLASS_OPTIONS: Final = ("autoretry_for", "dont_autoretry_for", "dead_letter_for", "stop_for")
#: Options that are changed elsewhere, or only in the code.
ELSEWHERE: Final = {
    "rate_limit": "Celery changes it in the workers that run: celery -A tasks control rate_limit HANDLER 10/m",
    "retry_kwargs": "change max_retries and default_retry_delay",
    "retry_when": "it is code: what is changed here counts where it answers None",
}


class PolicyOverrides(NamedTuple):
    """The part of a handler's policy that can be changed at run time.

    Attributes:
        name: the handler's.
        declared: the policy options of its code.
    """

    name: str
    declared: Mapping[str, Any]

    def read(self, words: Iterable[str]) -> dict[str, Any]:
        """Return the changes that a person has written: `max_retries=20`, `retry_delays=60,300`, `give_up_after=none`.

        Raises:
            HandlerError: an option does not exist, with the nearest name, or its value cannot be read.
        """
        changes: dict[str, Any] = {}
        for word in words:
            option, sign, value = word.partition("=")
            self.check_option(option)
            if not sign:
                raise HandlerError(f"{self.name}: {option} to what? Say {option}=VALUE.")
            try:
                changes[option] = CHANGEABLE[option](value.strip())
            except ValueError as error:
                raise HandlerError(f"{self.name}: {option} takes {error}; it was given {value!r}.") from None
        return changes

    def check_option(self, option: str) -> None:
        """Refuse an option that cannot be changed at run time.

        Raises:
            HandlerError: with the nearest name.
        """
        if option in CHANGEABLE:
            return
        if option in ELSEWHERE:
            raise HandlerError(f"{self.name}: {option} is not changed here: {ELSEWHERE[option]}.")
        near = get_close_matches(option, CHANGEABLE, 1)
        meant = f"is {near[0]!r} meant?" if near else f"there are {', '.join(CHANGEABLE)}."
        raise HandlerError(f"{self.name}: a policy has no option {option!r} that can be changed at run time: {meant}")

    def policy(self, changes: Mapping[str, Any]) -> RetryPolicy:
        """Return the policy with these changes, which `read` returned, perhaps for another version of the code.

        Raises:
            HandlerError: one is out of range, or has no effect beside the rest.
        """
        for option in changes:
            self.check_option(option)
        given = {**self.declared, **{option: value for option, value in changes.items() if option not in CLASS_OPTIONS}}
        replaced = {"countdown" if option == "default_retry_delay" else option for option in changes}
        kwargs = self.declared.get("retry_kwargs") or {}
        given["retry_kwargs"] = {key: value for key, value in kwargs.items() if key not in replaced}
        policy = make_policy(self.name, given)
        self._check_effects(policy, changes)
        lists: dict[str, Any] = {
            option: self._names(option, changes[option]) for option in CLASS_OPTIONS if option in changes
        }
        return replace(policy, **lists)

    def _names(self, option: str, given: Any) -> ErrorClasses:
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            raise HandlerError(f"{self.name}: {option} takes names of exception classes; it was given {given!r}.")
        return tuple(given)

    def _check_effects(self, policy: RetryPolicy, changes: Mapping[str, Any]) -> None:
        idle: tuple[str, ...]
        if policy.delays is not None:
            idle, fix = _BESIDE_DELAYS, "retry_delays, which says how often and when: set retry_delays=none as well"
        elif policy.fixed_delay is not None:
            idle, fix = _BESIDE_FIXED, f"the fixed delay of {policy.fixed_delay:g} s: set retry_backoff=true as well"
        else:
            idle, fix = _BESIDE_BACKOFF, "retry_backoff: set retry_backoff=false as well"
        for option in changes:
            if option in idle:
                raise HandlerError(f"{self.name}: {option} has no effect beside {fix}.")

    def course(self, policy: RetryPolicy, error_class: str, real: Callable[[float], float]) -> RetryForecast:
        """Return the forecast of a delivery that always fails with such an error."""
        return forecast_retries(policy, error_class, real)

    def shown(self, policy: RetryPolicy) -> dict[str, Any]:
        """Return a policy of this handler as options with JSON values; those without effect are `None`."""
        listed, fixed = policy.delays is not None, policy.fixed_delay is not None
        return {
            "max_retries": policy.retries,
            "retry_delays": None if policy.delays is None else list(policy.delays),
            "retry_backoff": None if listed or fixed else policy.backoff,
            "retry_backoff_multiplier": None if listed or fixed else policy.backoff_multiplier,
            "retry_backoff_max": None if listed or fixed else policy.backoff_max,
            "default_retry_delay": None if listed else policy.fixed_delay,
            "retry_jitter": policy.jitter and (listed or not fixed),
            "give_up_after": policy.give_up_after,
            **{option: class_names(getattr(policy, option)) for option in CLASS_OPTIONS},
            "retry_when": None if policy.retry_when is None else function_name(policy.retry_when),
        }


_OF_BACKOFF: Final = ("retry_backoff_multiplier", "retry_backoff_max")
_BESIDE_DELAYS: Final = ("max_retries", "retry_backoff", *_OF_BACKOFF, "default_retry_delay")
_BESIDE_FIXED: Final = (*_OF_BACKOFF, "retry_jitter")
_BESIDE_BACKOFF: Final = ("default_retry_delay",)


def class_names(kinds: ErrorClasses) -> list[str]:
    """Return the names of classes."""
    return [kind if isinstance(kind, str) else kind_name(kind) for kind in kinds]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number of seconds") from None
    return int(number) if number.is_integer() else number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def reads(text: str) -> Any:
        try:
            return None if text.lower() in _NONE else read(text)
        except ValueError as error:
            raise ValueError(f"{error}, or none") from None

    return reads


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError("true or false")
    return _SWITCH[text.lower()]


def _backoff(text: str) -> float | bool:
    try:
        return _SWITCH[text.lower()] if text.lower() in _SWITCH else _number(text)
    except ValueError:
        raise ValueError("a number of seconds, true or false") from None


def _multiplier(text: str) -> float:
    try:
        return _number(text)
    except ValueError:
        raise ValueError("a number") from None


def _delays(text: str) -> list[float]:
    try:
        return [_number(each) for each in _listed(text)]
    except ValueError:
        raise ValueError("seconds with commas between (60,300,300)") from None


def _listed(text: str) -> list[str]:
    """Return the parts between commas, also of a Python tuple: `(60, 300)`."""
    inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
    return inner.removesuffix(",").split(",")


def _classes(text: str) -> list[str]:
    return [] if text.lower() in ("", *_NONE) else [_class_name(name.strip()) for name in _listed(text)]


def _class_name(name: str) -> str:
    """Return the name by which workers know an imported class, also for another spelling of it."""
    module, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), attribute, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return kind_name(found)
    known = {kind_name(kind) for kind in list_exception_classes()}
    if name in known:
        return name
    same = sorted(each for each in known if each.rpartition(".")[2] == attribute)
    near = " or ".join(same[:3] or get_close_matches(name, sorted(known), 1))
    raise ValueError(f"exception classes that are imported{f' (is {near} meant?)' if near else ''}")


_NONE: Final = ("none", "null")
_SWITCH: Final[Mapping[str, bool]] = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

#: Every option that can be changed at run time, with the reader of its value.
CHANGEABLE: Final[Mapping[str, Callable[[str], Any]]] = {
    "max_retries": _or_none(_whole),
    "retry_delays": _or_none(_delays),
    "retry_backoff": _backoff,
    "retry_backoff_multiplier": _multiplier,
    "retry_backoff_max": _number,
    "retry_jitter": _switch,
    "default_retry_delay": _number,
    "give_up_after": _or_none(_number),
    **dict.fromkeys(CLASS_OPTIONS, _classes),
}
