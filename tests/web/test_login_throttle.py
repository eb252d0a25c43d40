"""What a wrong password costs: pure, and counted by name and by address."""

import threading

import pytest

from bridge.console.auth import login_throttle
from bridge.console.auth.login_throttle import LoginThrottle


class Clock:
    """Ms, as a test wants them."""

    def __init__(self):
        self.now = 5_000

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds * 1_000


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def counts(clock):
    return LoginThrottle(clock)


def wrong(counts, times, name="ann", address="10.0.0.1"):
    return [counts.guess(name, address) for _ in range(times)]


def test_each_wrong_one_says_what_the_next_costs(counts):
    said = [each.warning for each in wrong(counts, 5)]
    assert said == [
        "After 4 more wrong ones this name waits a minute.",
        "After 3 more wrong ones this name waits a minute.",
        "After 2 more wrong ones this name waits a minute.",
        "After the next wrong one this name waits a minute.",
        "After the next wrong one this name waits 2 minutes.",
    ]


def test_a_name_waits_longer_with_each_wrong_one_more_and_fifteen_minutes_at_most(counts, clock):
    wrong(counts, 5)
    waited = []
    for _ in range(7):
        refused = counts.guess("ann", "10.0.0.1")
        assert refused.waits == "name"
        waited.append(refused.left // 1_000)
        clock.now += refused.left
        assert counts.guess("ann", "10.0.0.1").waits == ""
        counts._addresses.clear()
    assert waited == [60, 120, 240, 480, 900, 900, 900]


def test_nobody_locks_a_name_out_at_another_address_or_on_a_known_device(counts):
    wrong(counts, 5)
    assert counts.guess("ann", "10.0.0.1").waits == "name"
    for number in range(15):
        counts.guess(f"user{number}", "10.0.0.1")
    assert counts.guess("bob", "10.0.0.1").waits == "address"
    assert counts.guess("ann", "10.0.0.2").waits == ""
    tried = [counts.guess("ann", "10.0.0.1", "proof") for _ in range(6)]
    assert [each.waits for each in tried] == [""] * 5 + ["name"]
    counts.right("ann", "10.0.0.1", "proof")
    assert counts.guess("ann", "10.0.0.1", "proof").waits == ""


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("a socket", "a socket"),
    ],
)
def test_of_ipv6_a_network_is_counted(address, counted):
    assert login_throttle.normalize_address(address) == counted


def test_an_address_waits_that_tries_many_names(counts):
    tried = [counts.guess(f"user{number}", "10.0.0.1") for number in range(21)]
    assert [each.waits for each in tried] == [""] * 20 + ["address"]
    assert tried[17].warning == "After 2 more wrong ones this address waits a minute."
    assert counts.guess("user1", "10.0.0.2").waits == ""


def test_a_right_one_lets_the_name_begin_anew(counts):
    wrong(counts, 4)
    counts.guess("ann", "10.0.0.1")
    counts.right("ann", "10.0.0.1")
    assert wrong(counts, 1)[0].warning == "After 4 more wrong ones this name waits a minute."


def test_who_knows_one_password_guesses_no_faster_by_it(counts):
    for _ in range(20):
        counts.guess("ann", "10.0.0.1")
        counts.guess("mine", "10.0.0.1")
        counts.right("mine", "10.0.0.1")
    assert counts.guess("ann", "10.0.0.1").waits == "name"


def test_wrong_ones_are_forgotten_after_an_hour(counts, clock):
    wrong(counts, 4)
    clock.pass_by(login_throttle.FORGET_AFTER)
    assert wrong(counts, 1)[0].warning == "After 4 more wrong ones this name waits a minute."


def test_many_at_once_are_no_way_round(counts):
    tried = []
    threads = [threading.Thread(target=lambda: tried.extend(wrong(counts, 1))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each.waits == "" for each in tried) == login_throttle.FREE_BY_NAME


def test_who_tries_without_end_takes_no_memory_without_end(counts, monkeypatch):
    monkeypatch.setattr(login_throttle, "MAX_COUNTED", 10)
    for number in range(100):
        counts.guess(f"user{number}", f"10.0.0.{number}")
    assert len(counts._names) == len(counts._addresses) == 10
