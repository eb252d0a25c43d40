"""Passwords as they are kept, and tried."""

import threading

import pytest

from bridge.console.auth import passwords
from bridge.errors import TooManySignIn, UserRefused
from tests.web.site import PASSWORD


@pytest.fixture(autouse=True)
def cheap_hashes() -> None:
    """None: these are the hashes that users have."""


def test_a_hash_takes_the_time_and_the_memory_that_argon2_recommends():
    assert f"$m={64 * 1024},t=3,p=4$" in passwords.hash_password("ann", PASSWORD)


def test_a_password_is_kept_as_an_argon2_hash_with_a_salt_of_its_own():
    made = [passwords.hash_password("ann", PASSWORD) for _ in range(2)]
    assert all(each.startswith("$argon2id$") for each in made)
    assert made[0] != made[1]
    assert all(passwords.verify_password(each, PASSWORD) for each in made)


@pytest.mark.parametrize("password", ["", "short", "a" * 11, "a" * 1_001, "Annabelle.Lee", "annabelle.lee12"])
def test_what_is_easily_guessed_or_too_long_is_refused(password):
    with pytest.raises(UserRefused, match="nothing was changed"):
        passwords.hash_password("annabelle.lee", password)


@pytest.mark.parametrize(
    "password",
    [
        "password1234",
        "Password2024!",
        "P@ssw0rd!2024",
        "123456789012",
        "qwertyuiop12",
        "1qaz2wsx3edc",
        "abcabcabcabc",
        "aaaaaaaaaaaaaaaa",
        "letmein123456",
        "Welcome-2026!",
        "kafka-bridge-1",
        "administrator",
        "q1w2e3r4t5y6",
        "zaq12wsx-1234",
        "ab-2026-05-06",
    ],
)
def test_a_password_that_is_tried_first_is_refused_however_long_it_is(password):
    with pytest.raises(UserRefused, match="first that are tried"):
        passwords.hash_password("annabelle.lee", password)


@pytest.mark.parametrize("password", ["tractor-violin-lemon", "xk8#Lw2!qPz9", "my cat eats kafka books", PASSWORD])
def test_a_password_of_one_s_own_is_taken(password):
    passwords.hash_password("annabelle.lee", password)


@pytest.mark.parametrize("password", ["c17eb7777f09c4f1", "a1b8f530735a6a2367483c2b13073369", "7W-5_04iX9_3-2bZ"])
def test_a_generated_password_is_taken_whose_letters_happen_to_be_in_ones_and_twos(password):
    passwords.hash_password("annabelle.lee", password)


@pytest.mark.parametrize("hash_", [None, "", "no hash", "$argon2id$v=19$m=8,t=1,p=1$AAAA$AAAA"])
@pytest.mark.parametrize("password", [PASSWORD, "nobody's", ""])
def test_what_is_no_hash_fits_no_password(hash_, password):
    assert passwords.verify_password(hash_, password) is False


def test_who_tries_many_at_once_keeps_no_thread_of_those_who_are_signed_in(monkeypatch):
    entered, go = threading.Semaphore(0), threading.Event()

    def slow(hash_: str, password: str) -> bool:
        entered.release()
        return go.wait(30)

    hash_ = passwords.hash_password("", PASSWORD)
    monkeypatch.setattr(passwords, "_verify_hash", slow)
    threads = [threading.Thread(target=passwords.verify_password, args=(hash_, PASSWORD)) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert all(entered.acquire(timeout=30) for _ in threads)
    with pytest.raises(TooManySignIn, match="try again"):
        passwords.verify_password(hash_, PASSWORD)
    go.set()
    for thread in threads:
        thread.join()
    assert passwords.verify_password(hash_, PASSWORD)
