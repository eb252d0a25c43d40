"""`Limit`: how many deliveries start in a second, and how many run at once, in all workers of the group (pure)."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from math import ceil, isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID

from bridge.formats.delivery import Message
from bridge.formats.group_decision import limit_subject
from bridge.ledger.limit_state import LimitTerms as LimitTerms
from tasks.errors import DeadLetter, HandlerError
from tasks.policy.retry_when_function import function_name

#: A function of a message that returns the key whose deliveries share the limit with those of other keys.
LimitKey = Callable[[Message], str | bytes | int | UUID | None]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
#: The least and the most of each number.
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "per_second": (0.001, 100_000),
    "burst": (1, 1_000_000),
    "concurrency": (1, 10_000),
}
#: The numbers that are whole.
_WHOLE: Final = ("burst", "concurrency")


class Limit:
    """A limit that all workers of the group keep together: what is above it waits, and spends no attempt.

    Handlers that name the same limit share it. Each of them, or each key with `by`, gets as much of it as any other.

    Parameters:
        name: letters, digits and ``._-``.
        per_second: how many deliveries start in a second; less than 1 for one in some seconds.
        burst: how many start at once after a pause; `None`: as many as in a second.
        concurrency: how many run at once.
        by: a function of the message that returns its key: text, bytes, a whole number, a UUID, or `None` for the
            messages that share what one key gets.

    Raises:
        HandlerError: something is out of range, or nothing is limited.
    """

    def __init__(
        self,
        name: str,
        *,
        per_second: float | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
        by: LimitKey | None = None,
    ) -> None:
        given: object = name
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise HandlerError(f"Limit takes a name, letters, digits and ._-; not {given!r}.")
        self.name = name
        self.declared: Mapping[str, Any] = {"per_second": per_second, "burst": burst, "concurrency": concurrency}
        self.terms = make_limit_terms(repr(self), self.declared)
        if by is not None:
            _check_function(repr(self), by)
        self.by = by

    def find_key(self, message: Message) -> bytes | None:
        """Return the key of a message; `None`: it has none.

        Raises:
            DeadLetter: what was found is neither text nor bytes, a whole number or a UUID.
            Exception: the function's own.
        """
        found: Any = None if self.by is None else self.by(message)
        if found is None or isinstance(found, bytes):
            return found
        if isinstance(found, str | int | UUID) and not isinstance(found, bool):
            return str(found).encode("utf-8", "surrogatepass")
        raise DeadLetter(
            f"{self!r}: by returned a {type(found).__name__} for {message.coordinates}: a key "
            "is a text, bytes, a whole number or a UUID, or None for a message without one."
        )

    @property
    def changing(self) -> "LimitOverrides":
        """Return the numbers that may be changed at run time."""
        return LimitOverrides(limit_subject(self.name), self.declared)

    def fault_beside(self, other: "Limit") -> str:
        """Return why two handlers cannot have these two limits; empty if they can."""
        if self.name != other.name or self.declared == other.declared:
            return ""
        return f"{self!r} has other numbers at another handler, and they share it: make one Limit, and give it to both."

    def __repr__(self) -> str:
        return f"Limit({self.name!r})"


def make_limit_terms(what: str, given: Mapping[str, Any]) -> LimitTerms:
    """Return the numbers of a limit.

    Parameters:
        what: names the limit in errors.
        given: by option its number, or `None`.

    Raises:
        HandlerError: one is out of range, or nothing is limited.
    """
    for name, (least, most) in _RANGES.items():
        if (number := given.get(name)) is None:
            continue
        fits = isinstance(number, int if name in _WHOLE else int | float) and not isinstance(number, bool)
        if not fits or not isfinite(number) or not least <= number <= most:
            kind = "a whole number" if name in _WHOLE else "a number"
            raise HandlerError(f"{what}: {name} takes {kind} from {least:g} to {most:,g}; it was given {number!r}.")
    rate, burst, concurrency = given.get("per_second"), given.get("burst"), given.get("concurrency")
    if rate is None and concurrency is None:
        raise HandlerError(f"{what} limits nothing: give it per_second, concurrency, or both.")
    if rate is None and burst is not None:
        raise HandlerError(f"{what}: burst says how far per_second may be exceeded for a moment: give per_second too.")
    return LimitTerms(rate, max(1, ceil(rate or 1)) if burst is None else burst, concurrency)


def _check_function(what: str, by: Any) -> None:
    if not callable(by) or inspect.isclass(by):
        raise HandlerError(f"{what}: by takes a function of the message that returns its key; it was given {by!r}.")
    if inspect.iscoroutinefunction(by) or inspect.isgeneratorfunction(by) or inspect.isasyncgenfunction(by):
        raise HandlerError(f"{what}: by={function_name(by)} is async, or yields: it must answer when called.")
    try:
        inspect.signature(by).bind(None)
    except TypeError:
        raise HandlerError(f"{what}: by={function_name(by)} is called with the message alone.") from None
    except ValueError:
        # Some functions written in C have no signature.
        pass


class LimitOverrides(NamedTuple):
    """The numbers of a limit that can be changed at run time, as `PolicyOverrides` are of a handler's policy.

    Attributes:
        name: `limit:bank`.
        declared: its numbers in the code.
    """

    name: str
    declared: Mapping[str, Any]

    def read(self, words: Iterable[str]) -> dict[str, Any]:
        """Return the changes that a person has written: `per_second=20`, `concurrency=none`.

        Raises:
            HandlerError: an option does not exist, or its value cannot be read.
        """
        changes: dict[str, Any] = {}
        for word in words:
            option, sign, value = word.partition("=")
            self.check_option(option)
            if not sign:
                raise HandlerError(f"{self.name}: {option} to what? Say {option}=VALUE.")
            changes[option] = _read_number(self.name, option, value.strip())
        return changes

    def check_option(self, option: str) -> None:
        """Refuse an option that a limit does not have.

        Raises:
            HandlerError: with those that it has.
        """
        if option not in _RANGES:
            raise HandlerError(f"{self.name}: a limit has no option {option!r}: there are {', '.join(_RANGES)}.")

    def policy(self, changes: Mapping[str, Any]) -> LimitTerms:
        """Return the numbers with these changes.

        Raises:
            HandlerError: one is out of range, or nothing would be limited.
        """
        for option in changes:
            self.check_option(option)
        given = {**self.declared, **changes}
        if given["per_second"] is None and "burst" not in changes:
            given["burst"] = None
        return make_limit_terms(self.name, given)

    def shown(self, policy: LimitTerms) -> dict[str, Any]:
        """Return the numbers as options with JSON values; those without effect are `None`."""
        return {
            "per_second": policy.per_second,
            "burst": None if policy.per_second is None else policy.burst,
            "concurrency": policy.concurrency,
        }


def _read_number(what: str, option: str, text: str) -> float | int | None:
    if text.lower() in ("none", "null"):
        return None
    try:
        number = float(text)
    except ValueError:
        kind = "a whole number" if option in _WHOLE else "a number"
        raise HandlerError(f"{what}: {option} takes {kind}, or none; it was given {text!r}.") from None
    return int(number) if number.is_integer() else number
