"""The options of `@handler`: their names and types, and the values that a delivery needs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict

from celery import Task
from celery.utils.time import rate

from tasks.declaration.handler_task import HandlerTask
from tasks.declaration.unique_name import UniqueBy
from tasks.declaration.value_codec import Codec, Upgrade
from tasks.errors import HandlerError
from tasks.policy.breaker_options import Breaker
from tasks.policy.limit_options import Limit
from tasks.policy.retry_policy import POLICY_OPTIONS, RETRY_OPTIONS
from tasks.policy.retry_when_function import RetryWhen

_Errors = type[BaseException] | Iterable[type[BaseException]]


class Options(TypedDict, total=False):
    """The options of `@handler`, delays in seconds; docs/how-to/write-handlers.md has the defaults."""

    # This project's own
    retry_delays: Sequence[float] | None
    retry_backoff_multiplier: float
    dead_letter_for: _Errors
    stop_for: _Errors
    retry_when: RetryWhen | None
    breaker: Breaker | None
    limit: Limit | None
    give_up_after: float | None
    codec: Codec
    upgrade: Upgrade | None
    batch: int | Literal["auto"]
    bulk: int | None
    batch_seconds: float
    concurrency: int | Literal["auto"]
    unique_by: UniqueBy | None
    unique_for: float | None
    aliases: Sequence[str]

    # Celery's, of retries
    autoretry_for: _Errors
    dont_autoretry_for: _Errors
    max_retries: int | None
    retry_backoff: bool | float
    retry_backoff_max: int
    retry_jitter: bool
    retry_kwargs: Mapping[str, Any]
    default_retry_delay: float

    # Celery's, where and when it runs
    name: str | None
    base: Any
    queue: Any
    exchange: Any
    routing_key: str
    priority: int | None
    expires: float | datetime | None
    rate_limit: str | int | float | None
    time_limit: float | None
    soft_time_limit: float | None
    compression: str | None
    delivery_mode: int | str

    # Celery's, what is seen of it
    throws: Sequence[type[BaseException]]
    ignore_result: bool
    store_errors_even_if_ignored: bool
    backend: Any
    track_started: bool
    trail: bool
    send_events: bool
    resultrepr_maxsize: int
    filter: Callable[..., Any] | None
    shadow_name: Callable[..., Any]
    before_start: Callable[..., Any]
    after_return: Callable[..., Any]
    on_success: Callable[..., Any]
    on_retry: Callable[..., Any]
    on_failure: Callable[..., Any]
    pydantic: bool
    pydantic_strict: bool
    pydantic_context: Mapping[str, Any] | None
    pydantic_dump_kwargs: Mapping[str, Any] | None

    # Celery's, that must be as they are
    serializer: str | None
    acks_late: bool
    acks_on_failure: bool
    acks_on_timeout: bool
    acks_on_failure_or_timeout: bool
    reject_on_worker_lost: bool
    retry_on_worker_lost: bool
    typing: bool


#: Celery's options with a required value, and the harm that another value would do.
REQUIRED_OPTIONS: Final[Mapping[str, tuple[object, str]]] = {
    "acks_late": (True, "a killed worker would lose what it runs"),
    "acks_on_failure": (True, "failures would loop or be lost"),
    "acks_on_timeout": (True, "timeouts would loop for ever"),
    "acks_on_failure_or_timeout": (True, "failures would loop or be lost"),
    "reject_on_worker_lost": (False, "lost processes are counted here: see lost_limit"),
    "retry_on_worker_lost": (False, "lost processes are counted here: see lost_limit"),
    "serializer": ("json", "only JSON is read back"),
    "typing": (False, "the arguments of a delivery are made from its record"),
}


#: What `kafka_topics` says of a topic, and `@handler` of nothing.
TOPIC_OPTIONS: Final = ("commit", "order", "sequence")


def check_option_names(name: str, options: Mapping[str, Any], base: type | None) -> None:
    """Refuse unknown options; a class of the user's under `base=` may have attributes of its own.

    Raises:
        HandlerError: with the nearest name.
    """
    known = {*Options.__annotations__, "bind"}
    theirs = set() if base is None else {attribute for attribute in dir(base) if attribute[:1] != "_"} - set(dir(Task))
    for option in options:
        if option in TOPIC_OPTIONS and option not in theirs:
            raise HandlerError(
                f'{name}: {option} is a topic\'s: kafka_topics = {{"orders": {{"{option}": …}}}} in celeryconfig.py.'
            )
        if option not in known | theirs:
            raise HandlerError(f"{name}: @handler has no option {option!r}{_nearest(option, known | theirs)}")
    for option, (needed, why) in REQUIRED_OPTIONS.items():
        for given in (options.get(option), *(_inherited(base, option) or ())):
            if given not in (needed, None):
                raise HandlerError(f"{name}: {option} must be {needed!r}: {why}; it was given {given!r}.")
    for option in ("Request", "Strategy"):
        if _inherited(base, option):
            raise HandlerError(f"{name}: base= sets {option}, which is how a delivery is kept: leave it out.")


def check_limit_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse limits that would kill a worker, or would never be reached.

    Raises:
        HandlerError: with what is wrong.
    """
    limit: Any = options.get("rate_limit")
    try:
        if isinstance(limit, str):
            rate(limit)
        elif not isinstance(limit, int | float | None):
            raise TypeError
    except (KeyError, ValueError, TypeError, AttributeError):
        raise HandlerError(
            f'{name}: rate_limit takes a number a second, or one like "10/m" (s, m or h); it was given {limit!r}.'
        ) from None
    soft, hard = options.get("soft_time_limit"), options.get("time_limit")
    if soft and hard and soft >= hard:
        raise HandlerError(f"{name}: soft_time_limit ({soft!r}) must be less than time_limit ({hard!r}).")


#: The most deliveries that one process may run at once.
MOST_AT_ONCE: Final = 1_000


def take_concurrency(name: str, options: dict[str, Any], *, is_async: bool) -> int | Literal["auto"]:
    """Remove the option `concurrency` and return how many deliveries a process runs at once.

    Raises:
        HandlerError: it is out of range, or the handler runs its deliveries one by one for another reason.
    """
    given: int | Literal["auto"] = options.pop("concurrency", 1)
    bulk = options.get("bulk")
    is_number = isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MOST_AT_ONCE
    if not is_number and given != "auto":
        raise HandlerError(
            f'{name}: concurrency takes "auto" or a whole number from 1 to {MOST_AT_ONCE:,}; it was given {given!r}.'
        )
    if given == 1:
        return 1
    if bulk is not None:
        raise HandlerError(
            f"{name}: bulk={bulk} gives one call many messages, concurrency={given!r} runs one call for each message: "
            "leave one out."
        )
    if not is_async:
        raise HandlerError(
            f"{name}: concurrency={given!r} is for async def handlers, and this function is none: make it one, or "
            "start more worker processes (celery worker --concurrency)."
        )
    batch = options.get("batch", "auto")
    if given != "auto" and isinstance(batch, int) and batch < given:
        raise HandlerError(
            f"{name}: batch={batch} gives a process fewer deliveries at a time than concurrency={given}: raise "
            "batch, or leave it out."
        )
    if options.get("rate_limit") and batch == "auto":
        raise HandlerError(
            f"{name}: a rate_limit runs deliveries one by one, concurrency={given!r} side by side: leave one out."
        )
    return given


#: The most deliveries of one Celery task.
MOST_DELIVERIES: Final = 10_000


def take_batch_options(name: str, options: dict[str, Any]) -> tuple[int | Literal["auto"], int | None]:
    """Remove `batch` and `bulk`; return how many deliveries a task carries, and how many messages a call takes.

    Raises:
        HandlerError: one is out of range, or both are given.
    """
    bulk, batch = options.pop("bulk", None), options.pop("batch", "auto")
    if bulk is not None and not _counts_deliveries(bulk):
        raise HandlerError(f"{name}: bulk takes a whole number from 1 to 10,000; it was given {bulk!r}.")
    if not _counts_deliveries(batch) and batch != "auto":
        raise HandlerError(f'{name}: batch takes "auto" or a whole number from 1 to 10,000; it was given {batch!r}.')
    if bulk is not None and batch != "auto":
        raise HandlerError(
            f"{name}: a task of a bulk handler carries as many deliveries as bulk says: leave batch out."
        )
    return (batch if bulk is None else bulk), bulk


def _counts_deliveries(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MOST_DELIVERIES


def take_policy_options(options: dict[str, Any], base: type | None) -> dict[str, Any]:
    """Remove the policy's options and return them; missing retry options come from the class `base`."""
    for option in (*RETRY_OPTIONS, "max_retries", "default_retry_delay"):
        if option not in options and (found := _inherited(base, option)) is not None:
            options[option] = found[0]
    taken: dict[str, Any] = {option: options[option] for option in POLICY_OPTIONS if option in options}
    for option in taken.keys() - {"default_retry_delay"}:
        del options[option]
    return taken


def _inherited(base: type | None, attribute: str) -> tuple[Any] | None:
    """Return an option's value, as a tuple, from a class of the user's or one of its bases; None if there is none."""
    for kind in () if base is None else base.__mro__:
        if issubclass(HandlerTask, kind):
            return None
        if attribute in vars(kind):
            return (vars(kind)[attribute],)
    return None


def _nearest(word: str, known: Iterable[str]) -> str:
    found = get_close_matches(word, sorted(known), 1)
    return f": is {found[0]!r} meant?" if found else ": an attribute of the task's own goes into a class: base=."
