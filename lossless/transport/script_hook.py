"""What an application has done in the same step in which a message is taken, and in which it is acknowledged.

An application that asks Redis about each message before it works on it, and tells Redis afterwards that it is done,
makes two trips beside the transport's own two. A *rider* goes along with those instead, where it is the same Redis: its
Lua runs within the transport's scripts. `broker_transport_options["rider"]` is one, or its ``module:name``.

A message's ``properties["looked"]`` then says when it was looked at (monotonic clock, one for all processes of a host)
and what was found. What is to be done with an acknowledgement is said by `Channel.do_along`: it is done, or the message
is not acknowledged, and both are repeated until Redis has answered.

Steps that Redis refuses: what is said of them, and when they are tried again.
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

from lossless.lua import Script
from lossless.transport.transport_scripts import ACK, TAKE

#: The property of a message that says when it was looked at, and what was found.
LOOKED: Final = "looked"


@dataclass(frozen=True)
class ScriptHook:
    """Lua of an application's: bodies of two functions.

    Parameters:
        look: of ``raw``, a message as it lies in its list. Reads, and returns text. An error is no answer.
        step: of ``KEYS`` and ``ARGV``. Writes; done again, it must change nothing. An error keeps the message.
    """

    look: str
    step: str


@dataclass(frozen=True)
class HookedScripts:
    """The scripts that a rider goes along with."""

    take: Script
    ack: Script
    looks: bool = True


@dataclass(slots=True)
class HookStep:
    """Keys and arguments of a rider's step, and when Redis was known to have done it (monotonic clock; not yet)."""

    keys: Sequence[str]
    args: Sequence[str | int | bytes]
    done_at: float = math.inf


def make_hooked_scripts(option: object) -> HookedScripts:
    """Return the scripts for the transport option ``rider``. Raises `ValueError` where it is none."""
    rider = symbol_by_name(option) if isinstance(option, str) and option else option
    if rider and not isinstance(rider, ScriptHook):
        raise ValueError(
            f"broker_transport_options['rider'] is {option!r}, which is no lossless.transport.script_hook.ScriptHook"
        )
    return _hook_scripts(rider or None)


@lru_cache
def _hook_scripts(rider: ScriptHook | None) -> HookedScripts:
    look, step = (rider.look, rider.step) if rider else ("return ''", "error('no rider')")
    functions = f"local function look(raw) {look}\nend local function step(KEYS, ARGV) {step}\nend"
    return HookedScripts(Script(f"{functions} {TAKE.text}"), Script(f"{functions} {ACK.text}"), rider is not None)


#: Without a rider.
UNHOOKED: Final = make_hooked_scripts(None)


logger = get_logger("lossless.transport")

#: The first and the longest pause between two tries, in seconds.
SHORTEST, LONGEST = 0.1, 5.0


class RefusedSteps:
    """Of one holder. What is refused once is tried again at once, then ever more seldom; each reason is said once."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._pause = 0.0
        self._due_at = 0.0

    def of(self, answer: str, fields: Collection[str], steps: Mapping[str, HookStep]) -> set[str]:
        """Return the fields of which the step was refused, of those that were sent, and say why.

        Parameters:
            answer: what acknowledge.lua returned.
            steps: of the fields.
        """
        named, _, why = answer.partition("\n")
        found = [field for field in named.split(",") if field in fields]
        if found and why not in self._said:
            self._said.add(why)
            keys = ", ".join(map(str, steps[found[0]].keys)) if found[0] in steps else "keys that are not known"
            logger.error(
                "Redis refused what goes along with the acknowledgement of %d messages; they stay held, and it is "
                "tried again. The first is %s, on %s: %s", len(found), found[0], keys, why,
            )  # fmt: skip
        return set(found)

    def due(self) -> bool:
        """Whether what was refused is to be tried again."""
        return monotonic() >= self._due_at

    def tried(self, refused: bool) -> None:
        """Be told that all of it was tried again, and whether any is refused still."""
        if not refused:
            self._said.clear()
        self._pause = min(max(2 * self._pause, SHORTEST), LONGEST) if refused else 0.0
        self._due_at = monotonic() + self._pause
