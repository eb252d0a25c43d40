"""What an application has done in the same step in which a message is taken, and in which it is acknowledged.

An application that asks Redis about each message before it works on it, and tells Redis afterwards that it is done,
makes two trips beside the transport's own two. A *rider* goes along with those instead, where it is the same Redis: its
Lua runs within the transport's scripts. `broker_transport_options["rider"]` is one, or its ``module:name``.

A message's ``properties["looked"]`` then says when it was looked at (monotonic clock, one for all processes of a host)
and what was found. What is to be done with an acknowledgement is said by `Channel.do_along`: it is done, or the message
is not acknowledged, and both are repeated until Redis has answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kombu.utils.imports import symbol_by_name

from lossless.lua import Script
from lossless.transport.scripts import ACK, TAKE

#: The property of a message that says when it was looked at, and what was found.
LOOKED: Final = "looked"


@dataclass(frozen=True)
class Rider:
    """Lua of an application's: bodies of two functions.

    Parameters:
        look: of ``raw``, a message as it lies in its list. Reads, and returns text. An error is no answer.
        step: of ``KEYS`` and ``ARGV``. Writes; done again, it must change nothing. An error keeps the message.
    """

    look: str
    step: str


@dataclass(frozen=True)
class Ridden:
    """The scripts that a rider goes along with."""

    take: Script
    ack: Script
    looks: bool = True


@dataclass(slots=True)
class Step:
    """Keys and arguments of a rider's step, and when Redis was known to have done it (monotonic clock; not yet)."""

    keys: Sequence[str]
    args: Sequence[str | int | bytes]
    done_at: float = math.inf


def ridden(option: object) -> Ridden:
    """Return the scripts for the transport option ``rider``. Raises `ValueError` where it is none."""
    rider = symbol_by_name(option) if isinstance(option, str) and option else option
    if rider and not isinstance(rider, Rider):
        raise ValueError(
            f"broker_transport_options['rider'] is {option!r}, which is no lossless.transport.riding.Rider"
        )
    return _ridden(rider or None)


@lru_cache
def _ridden(rider: Rider | None) -> Ridden:
    look, step = (rider.look, rider.step) if rider else ("return ''", "error('no rider')")
    functions = f"local function look(raw) {look}\nend local function step(KEYS, ARGV) {step}\nend"
    return Ridden(Script(f"{functions} {TAKE.text}"), Script(f"{functions} {ACK.text}"), rider is not None)


#: Without a rider.
ALONE: Final = ridden(None)
