"""`Breaker`: the options of a dependency's circuit breaker: its thresholds, and the errors that count (pure)."""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final, Literal

from bridge.ledger.breaker_state import BreakerTerms
from tasks.errors import DeadLetter, HandlerError, RetryLater, StopConsuming, Undecodable
from tasks.policy.failure_decision import EXHAUSTED, EXPIRED, DeadLetterDelivery, FailureDecision, RetryDelivery

#: The meaning of an error for a dependency.
BreakerVerdict = Literal["failed", "dead", "nothing"]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
#: Errors about one message, or explicit requests of the handler.
_OF_THE_MESSAGE: Final = (DeadLetter, Undecodable, RetryLater, StopConsuming)
#: Errors of the handler's own code, which say nothing of a dependency unless `failures_of` names them.
OF_THE_CODE: Final = (TypeError, KeyError, NameError, AttributeError)
#: The least and the most of each number.
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "failures": (2, 500),
    "ratio": (0.01, 1),
    "window": (1, 600),
    "dead_letters": (2, 500),
    "probe_every": (0.1, 3600),
    "probe_within": (1, 86_400),
    "ramp": (1, 3600),
}


class Breaker:
    """A circuit breaker for a service or a database: while it is open, deliveries wait and spend no attempt.

    Handlers that name the same dependency share its state, in all workers of the group.

    Parameters:
        dependency: its name: letters, digits and ``._-``.
        failures: the breaker opens after so many deliveries have failed without a success in between, or within the
            window, if they are the ratio of all. A delivery counts once, however often it is retried.
        ratio: see `failures`.
        window: seconds.
        dead_letters: so many failed or dead deliveries without a success in between open it too.
        failures_of: the exception classes that count against the dependency; `None`: all that a retry may
            cure, except errors of code (`TypeError`, `KeyError`, `NameError`, `AttributeError`).
        probe_every: the longest seconds between two trial requests; the first comes after one second.
        probe_within: seconds after which a trial request that has not ended is replaced.
        ramp: seconds from the first success until all may run again.

    Raises:
        HandlerError: something is out of range.
    """

    def __init__(
        self,
        dependency: str,
        *,
        failures: int = 10,
        ratio: float = 0.5,
        window: float = 30,
        dead_letters: int = 20,
        failures_of: type[BaseException] | Iterable[type[BaseException]] | None = None,
        probe_every: float = 10,
        probe_within: float = 30,
        ramp: float = 10,
    ) -> None:
        given: object = dependency
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise HandlerError(f"Breaker takes the name of a dependency, letters, digits and ._-; not {given!r}.")
        self.dependency = dependency
        numbers = {
            "failures": failures,
            "ratio": ratio,
            "window": window,
            "dead_letters": dead_letters,
            "probe_every": probe_every,
            "probe_within": probe_within,
            "ramp": ramp,
        }
        for name, given in numbers.items():
            self._check(name, given)
        self.terms = BreakerTerms(**numbers)  # type: ignore[arg-type]
        self.failures_of = self._classes(failures_of)

    def _check(self, name: str, given: object) -> None:
        least, most = _RANGES[name]
        whole = name in ("failures", "dead_letters")
        fits = isinstance(given, int if whole else int | float) and not isinstance(given, bool)
        if not fits or not isfinite(given) or not least <= given <= most:  # type: ignore[arg-type, operator]
            kind = "a whole number" if whole else "a number"
            raise HandlerError(
                f"Breaker({self.dependency!r}): {name} takes {kind} from {least:g} to {most:,g}; not {given!r}."
            )

    def _classes(self, given: Any) -> tuple[type[BaseException], ...] | None:
        if given is None:
            return None
        kinds = tuple(given) if isinstance(given, tuple | list | set | frozenset) else (given,)
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise HandlerError(f"Breaker({self.dependency!r}): failures_of takes classes of exceptions; not {given!r}.")
        return kinds

    def says(self, error: BaseException, decision: FailureDecision) -> BreakerVerdict:
        """Return what a failed run means for the dependency.

        Parameters:
            decision: the policy's decision on the error.
        """
        if isinstance(error, _OF_THE_MESSAGE):
            return "nothing"
        if self.failures_of is not None:
            return "failed" if isinstance(error, self.failures_of) else "nothing"
        if isinstance(error, OF_THE_CODE):
            return "nothing"
        if isinstance(decision, DeadLetterDelivery):
            return "failed" if decision.reason in (EXHAUSTED, EXPIRED) else "dead"
        return "failed" if isinstance(decision, RetryDelivery) and decision.spent else "nothing"

    @property
    def hears_of_limits(self) -> bool:
        """Return whether a run ended by its hard time limit counts as a failure, as a `TimeoutError` does."""
        return self.failures_of is None or any(issubclass(TimeoutError, kind) for kind in self.failures_of)

    def fault_beside(self, other: "Breaker") -> str:
        """Return why two handlers cannot have these two breakers; empty if they can."""
        if self.dependency != other.dependency or self.terms == other.terms:
            return ""
        return (
            f"Breaker({self.dependency!r}) has other numbers at another handler, and its state is theirs together: "
            "make one Breaker, and give it to both."
        )

    def __repr__(self) -> str:
        return f"Breaker({self.dependency!r})"
