"""Passwords: length, common ones that are refused, and argon2 hashes (RFC 9106 for little memory)."""

import re
import threading
from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from bridge.errors import TooManySignIn, UserRefused

#: Words that are a whole password apart from digits and signs around them.
_COMMON: Final = """
access account admin administrator baseball batman bridge celery changeit changeme charlie christopher computer
console cookiemonster correcthorsebatterystaple cosmopolitan counterstrike database default dragon finalfantasy
football freedom friend friendof gateway guest hannahmontana hello iloveyou ingodwetrust internal international
jesuslovesme justinbieber kafka leavemealone letmein liverpool login lovelove manager manchesterunited master
michael michaeljackson minecraft mobilemail monkey mustang mypassword needforspeed nothing onedirection operator
passphrase passw passwd password passwort peanutbutter playstation princess production professional public redis
residentevil root secret secure security server service shadow sonnenschein sonyericsson starwars stratocaster
sunshine superman supernatural supersecret superuser support system temp temppassword test testing thisisapassword
toor transformers trustno user username viewer welcome whatever yourpassword
"""
_WORDS: Final = frozenset(_COMMON.split())
#: Rows of a keyboard and of the alphabet: each part of them, forwards or backwards, is a sequence.
_ROWS: Final = (
    "1234567890-=",
    "01234567890",
    "qwertyuiop[]",
    "qwertzuiop",
    "azertyuiop",
    "asdfghjkl;",
    "zxcvbnm,./",
    "yxcvbnm",
    "abcdefghijklmnopqrstuvwxyz",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "qazwsxedcrfvtgbyhnujmikolp",
    "q1w2e3r4t5y6u7i8o9p0",
    "1q2w3e4r5t6y7u8i9o0p",
    "11223344556677889900",
    "0102030405060708090",
    "102030405060708090",
)
_LETTERS: Final = str.maketrans("@4301!5$7+", "aaeoiisstt")
#: The least characters of a sequence.
_STRETCH: Final = 3
#: The number of different characters below which a password is a repetition.
_DIFFERENT: Final = 5
#: The length from which on letters in ones and twos are a sign of a generated password, and of no date.
_GENERATED: Final = 16
#: The characters beside its easily guessed parts from which on a password is accepted.
_OWN: Final = 6


def is_common_password(password: str) -> bool:
    """Return whether a password is one of those that attackers try first."""
    small = password.lower()
    if len(set(small)) < _DIFFERENT or _is_repeated(small):
        return True
    if _own_characters(small) < _OWN:
        return True
    needs_word = len(small) >= _GENERATED
    return any(_is_word(text, needs_word) for text in (small, _core(small).translate(_LETTERS)))


def _is_repeated(text: str) -> bool:
    """Return whether it repeats a part of up to eight characters."""
    return re.fullmatch(r"(.{1,8}?)\1+.{0,3}", text, re.DOTALL) is not None


def _is_word(text: str, needs_word: bool) -> bool:
    """Return whether it is made of common words, one or two letters, digits and signs only.

    Parameters:
        needs_word: whether one of them must be a word.
    """
    parts = re.findall(r"[a-z]+", text)
    if "".join(parts) in _WORDS:
        return True
    has_word = any(part in _WORDS for part in parts)
    return (has_word if needs_word else bool(parts)) and all(part in _WORDS or len(part) < _STRETCH for part in parts)


def _core(text: str) -> str:
    """Return the text without the digits and signs around it."""
    return re.sub(r"^[^a-z]+|[^a-z]+$", "", text)


def _own_characters(text: str) -> int:
    """Return how many characters are outside keyboard and alphabet sequences."""
    own, at = 0, 0
    while at < len(text):
        longest = max((_stretch(text[at:], row) for row in _ROWS_BOTH_WAYS), default=0)
        own, at = (own, at + longest) if longest >= _STRETCH else (own + 1, at + 1)
    return own


def _stretch(text: str, row: str) -> int:
    """Return the length of the keyboard or alphabet sequence at the beginning of a text."""
    length = 0
    while length < len(text) and text[: length + 1] in row:
        length += 1
    return length


_ROWS_BOTH_WAYS: Final = (*_ROWS, *(row[::-1] for row in _ROWS))


MIN_PASSWORD_LENGTH: Final = 12
#: The most characters: hashing a longer password only costs time.
MAX_PASSWORD_LENGTH: Final = 1_000
#: The hashes that are computed at a time: each takes 64 MiB of memory.
_TRYING: Final = threading.BoundedSemaphore(2)
#: The same with those that wait; more would take the threads that serve signed-in users.
_AT_ONCE: Final = threading.BoundedSemaphore(10)
_HASHER: Final = PasswordHasher()


def hash_password(name: str, password: str) -> str:
    """Return the hash of a user's new password.

    Raises:
        UserRefused: the password is too easily guessed, or too long.
    """
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise UserRefused(
            f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH:,} characters: nothing was changed."
        )
    if name.strip().lower() in password.lower() and len(password) < len(name) + MIN_PASSWORD_LENGTH:
        raise UserRefused("A password is more than the user's name and a few characters: nothing was changed.")
    if is_common_password(password):
        raise UserRefused(
            "This password is among the first that are tried (a common word, a row of keys, a repetition): nothing was "
            "changed. Take four words that have nothing to do with each other."
        )
    return _HASHER.hash(password)


def verify_password(kept: str | None, password: str) -> bool:
    """Return whether a password fits a hash; without a hash (`None`) it takes the same time.

    Raises:
        TooManySignIn: too many passwords are being checked; this one was not tried.
    """
    if not _AT_ONCE.acquire(blocking=False):
        raise TooManySignIn("Too many sign in at this moment, and this was not tried: try again in some seconds.")
    try:
        nobodys = _hash_of_nobody()
        has_one = kept is not None and kept.startswith("$argon2")
        return _verify_hash(kept if kept and has_one else nobodys, password[:MAX_PASSWORD_LENGTH]) and has_one
    finally:
        _AT_ONCE.release()


def _verify_hash(kept: str, password: str) -> bool:
    with _TRYING:
        try:
            return _HASHER.verify(kept, password)
        except (VerificationError, InvalidHashError):
            return False


def renew_hash(kept: str, password: str) -> str | None:
    """Return a hash by the current parameters; `None` if it has them already."""
    return _HASHER.hash(password) if _HASHER.check_needs_rehash(kept) else None


@cache
def _hash_of_nobody() -> str:
    return _HASHER.hash("nobody's")
