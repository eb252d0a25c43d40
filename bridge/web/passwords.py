"""Passwords: made into hashes, and tried, by argon2 with its own parameters (RFC 9106's for little memory)."""

import threading
from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from bridge.errors import TooManySignIn, UserRefused
from bridge.web.common_passwords import is_common

SHORTEST: Final = 12
#: Nobody types more; a longer one costs time before it is wrong.
LONGEST: Final = 1_000
#: At a time: each takes 64 MiB of memory.
_TRYING: Final = threading.BoundedSemaphore(2)
#: With those that wait for it; more would keep the threads that answer people who are signed in.
_AT_ONCE: Final = threading.BoundedSemaphore(10)
_HASHER: Final = PasswordHasher()


def hashed(name: str, password: str) -> str:
    """A user's new password, as it is kept.

    Raises:
        UserRefused: it is too easily guessed, or too long.
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise UserRefused(f"A password has {SHORTEST} to {LONGEST:,} characters: nothing was changed.")
    if name.strip().lower() in password.lower() and len(password) < len(name) + SHORTEST:
        raise UserRefused("A password is more than the user's name and a few characters: nothing was changed.")
    if is_common(password):
        raise UserRefused(
            "This password is among the first that are tried (a common word, a row of keys, a repetition): nothing was "
            "changed. Take four words that have nothing to do with each other."
        )
    return _HASHER.hash(password)


def fits(kept: str | None, password: str) -> bool:
    """Whether it is the password of this hash; for nobody (`None`), or for who has none, no less time.

    Raises:
        TooManySignIn: others are tried, and wait to be: nothing was tried.
    """
    if not _AT_ONCE.acquire(blocking=False):
        raise TooManySignIn("Too many sign in at this moment, and this was not tried: try again in some seconds.")
    try:
        nobodys = _nobodys()
        has_one = kept is not None and kept.startswith("$argon2")
        return _verified(kept if kept and has_one else nobodys, password[:LONGEST]) and has_one
    finally:
        _AT_ONCE.release()


def _verified(kept: str, password: str) -> bool:
    with _TRYING:
        try:
            return _HASHER.verify(kept, password)
        except (VerificationError, InvalidHashError):
            return False


def better(kept: str, password: str) -> str | None:
    """The same password by the parameters of today; `None`: it is by these already."""
    return _HASHER.hash(password) if _HASHER.check_needs_rehash(kept) else None


@cache
def _nobodys() -> str:
    return _HASHER.hash("nobody's")
