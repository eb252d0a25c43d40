"""Hashes of passwords that cost nothing: argon2's own parameters take a tenth of a second and 64 MiB for each."""

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher

from bridge.console.auth import passwords


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where it is taken up: passwords are hashed and tried as ever, by the least parameters."""
    passwords._hash_of_nobody.cache_clear()
    monkeypatch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    yield
    passwords._hash_of_nobody.cache_clear()
