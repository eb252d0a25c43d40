"""The script hook: Lua of the application that runs inside the transport's take and acknowledge scripts.

An application that asks Redis about each message before it works on it, and tells Redis afterwards that it is done,
makes two round trips beside the transport's own two. Where it is the same Redis, a hook saves them.
`broker_transport_options["rider"]` is a `ScriptHook`, or its ``module:name``.

A message's ``properties["looked"]`` has the time at which the hook read it (monotonic clock, one for all processes of a
host) and the text that the hook returned. `Channel.bundle_with_ack` adds a step to an acknowledgement: Redis does both
or neither, and both are repeated until Redis has answered. This module also says when a refused step is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Final

from kombu.log import get_logger
from kombu.utils.imports import symbol_by_name

from lossless.backoff import Backoff, RetryTimer
from lossless.lua import Script
from lossless.transport.transport_scripts import ACKNOWLEDGE, TAKE_MESSAGES

#: The property of a message with the time at which the hook read it, and the text that the hook returned.
LOOKED: Final = "looked"


@dataclass(frozen=True)
class ScriptHook:
    """An application's Lua: the bodies of two functions.

    Parameters:
        look: a function of ``raw``, the message as it is in its list. It reads and returns text; an error counts as
            no text.
        step: a function of ``KEYS``, ``ARGV`` and ``run``. It writes, and is idempotent. An error keeps the message.
            ``run`` is a table for all steps of one run of the script, which has written before the first of them.
    """

    look: str
    step: str


@dataclass(frozen=True)
class HookedScripts:
    """The take and acknowledge scripts, with a hook in them.

    Attributes:
        looks: whether there is a hook.
    """

    take: Script
    ack: Script
    looks: bool = True


@dataclass(slots=True)
class HookStep:
    """The keys and arguments of a hook's step, and when Redis did it (monotonic clock; infinite: not yet)."""

    keys: Sequence[str]
    args: Sequence[str | int | bytes]
    done_at: float = math.inf


def make_hooked_scripts(option: object) -> HookedScripts:
    """Return the scripts for the transport option ``rider``. Raises `ValueError` if it is no hook."""
    hook = symbol_by_name(option) if isinstance(option, str) and option else option
    if hook and not isinstance(hook, ScriptHook):
        raise ValueError(
            f"broker_transport_options['rider'] is {option!r}, which is no lossless.transport.script_hook.ScriptHook"
        )
    return _hook_scripts(hook or None)


@lru_cache
def _hook_scripts(hook: ScriptHook | None) -> HookedScripts:
    look, step = (hook.look, hook.step) if hook else ("return ''", "error('no hook')")
    functions = f"local function look(raw) {look}\nend local function step(KEYS, ARGV, run) {step}\nend"
    return HookedScripts(
        Script(f"{functions} {TAKE_MESSAGES.text}"), Script(f"{functions} {ACKNOWLEDGE.text}"), hook is not None
    )


#: The scripts without a hook.
UNHOOKED: Final = make_hooked_scripts(None)


logger = get_logger("lossless.transport")

#: Seconds between two tries of refused steps.
RETRY_AFTER: Final = Backoff(first=0.1, most=5.0)


class RefusedSteps:
    """The steps of one holder that Redis refused: retried with growing pauses; each reason is logged once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._timer = RetryTimer(RETRY_AFTER)

    def read(self, answer: str, fields: Collection[str], steps: Mapping[str, HookStep]) -> set[str]:
        """Return the sent fields whose step Redis refused, and log the reason.

        Parameters:
            answer: what acknowledgement.lua returned.
            steps: the step of each field.
        """
        names, _, reason = answer.partition("\n")
        refused = [field for field in names.split(",") if field in fields]
        if refused and reason not in self._logged:
            self._logged.add(reason)
            keys = ", ".join(map(str, steps[refused[0]].keys)) if refused[0] in steps else "keys that are not known"
            logger.error(
                "Redis refused the steps bundled with the acknowledgement of %d messages; they stay held, and the "
                "steps are tried again. The first is %s, on %s: %s", len(refused), refused[0], keys, reason,
            )  # fmt: skip
        return set(refused)

    def due(self) -> bool:
        """Return whether it is time to try the refused steps again."""
        return self._timer.is_due(monotonic())

    def tried(self, refused: bool) -> None:
        """Note that all were tried again, and whether Redis still refuses any."""
        if refused:
            self._timer.note_failure(monotonic())
        else:
            self._logged.clear()
            self._timer.reset()
