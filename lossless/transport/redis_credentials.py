"""Credentials that a function returns at each new connection, for passwords and tokens that are rotated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

#: Returns user and password; the user is empty or "default" for Redis's default user.
CredentialFunction = Callable[[], tuple[str, str]]


class FunctionCredentials(redis.CredentialProvider):
    """The credentials that a function returns, asked for at each new connection.

    Parameters:
        load: returns the function; called once, at the first connection.
        setting: what names the function, for errors.
    """

    def __init__(self, load: Callable[[], CredentialFunction], setting: str) -> None:
        self.setting = setting
        self._load = load
        self._function: CredentialFunction | None = None

    def __repr__(self) -> str:
        return f"FunctionCredentials({self.setting})"

    def get_credentials(self) -> tuple[str, str]:
        """Return user and password.

        Raises:
            redis.AuthenticationError: the function cannot be had, fails, or returns something else. It names the
                setting. redis-py closes a connection after its own errors alone.
        """
        try:
            if self._function is None:
                self._function = self._load()
            found: Any = self._function()
        except Exception as error:  # whatever a user's function raises
            words = f"{type(error).__name__}: {str(error).removeprefix('- ')}".rstrip(". ")
            raise redis.AuthenticationError(f"the function of {self.setting} failed: {words}") from error
        if fault := find_credentials_fault(found):
            raise redis.AuthenticationError(f"the function of {self.setting} {fault}")
        user, password = found
        return user or "default", password


def find_credentials_fault(found: object) -> str | None:
    """Return what is wrong with the answer of a function, without values of it; None if it is a user and a password."""
    if not isinstance(found, tuple | list):
        return f"must return user and password, two texts; it returned {type(found).__name__}"
    if len(found) != 2 or not all(isinstance(part, str) for part in found):
        kinds = ", ".join(type(part).__name__ for part in found)
        return f"must return user and password, two texts; it returned ({kinds})"
    return None if found[1] else "returned an empty password"


_used: list[FunctionCredentials] = []


def use_credentials(credentials: FunctionCredentials | None) -> None:
    """Have the connections of this process's transport use credentials, where the URL has none; None: no longer."""
    _used[:] = [credentials] if credentials is not None else []


def add_credentials(parameters: dict[str, Any]) -> None:
    """Add the process's credentials to the parameters of a connection that has no user or password of its own."""
    if _used and not any(parameters.get(name) for name in ("username", "password", "credential_provider")):
        parameters.pop("username", None)
        parameters.pop("password", None)
        parameters["credential_provider"] = _used[0]
