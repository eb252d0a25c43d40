"""Which versions of the handlers' code have what was mended in one."""

import pytest

from bridge.deadletters.replay.fixed_group_replay import explain_fix_wait, has_fix, is_fix_deployed


@pytest.mark.parametrize(
    ("version", "fixed_in", "mended"),
    [
        ("1.4.2", "1.4.2", True),
        ("1.10.0", "1.9", True),
        ("1.4.1", "1.4.2", False),
        ("2.0", "1.99.99", True),
        ("v1.5", "1.5", True),
        ("1.5.0rc1", "1.5", False),
        ("1.5+build7", "1.5", True),
        ("3f2c1ab", "3f2c1ab", True),
        ("9d8e7f0", "3f2c1ab", False),
        ("1.5", "3f2c1ab", False),
        ("3f2c1ab", "1.5", False),
        ("7654321", "1234567", False),
        ("1234567", "1234567", True),
        ("12345b7", "12345a6", False),
        ("7654321", "1.5", False),
        ("2026-11-24", "2026-11-20", True),
        ("2026-11-19", "2026-11-20", False),
        ("2026-11-20-2", "2026-11-20", True),
        ("2026-11-20T09:30:00Z", "2026-11-20T10:00:00Z", False),
        ("20261124", "20261120", True),
        ("20261119", "20261120", False),
        ("2026.11.24", "2026-11-20", True),
        ("", "1.5", False),
        ("", "", False),
    ],
)
def test_the_version_itself_and_later_ones_have_what_was_mended_in_it(version, fixed_in, mended):
    assert has_fix(version, fixed_in) is mended


def worker(version: str | None, *handlers: str) -> dict[str, object]:
    said = {} if version is None else {"handler_versions": dict.fromkeys(handlers, version)}
    return {"handlers": list(handlers), **said}


@pytest.mark.parametrize(
    ("workers", "may"),
    [
        ([worker("2", "charge")], True),
        ([worker("2", "charge"), worker("3", "charge", "notify")], True),
        ([worker("2", "charge"), worker("1", "charge")], False),
        ([worker("2", "charge"), worker("1", "notify")], True),
        ([worker("2", "notify")], False),
        ([worker(None, "charge")], False),
        ([], False),
    ],
    ids=["one", "all", "an older one is left", "an older one of others", "of others", "an old release", "none lives"],
)
def test_letters_go_back_once_every_worker_that_may_get_them_has_what_was_mended(workers, may):
    assert is_fix_deployed("charge", "2", workers) is may


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ((), "no living worker has pay: its letters are replayed once one reports 1.4.2"),
        ((("other", "1.4.2"),), "no living worker has pay: its letters are replayed once one reports 1.4.2"),
        (
            (("pay", None), ("pay", "1.4.2")),
            "1 of 2 workers reports no version of pay, so nothing is replayed automatically",
        ),
        (
            (("pay", "1.4.1"), ("pay", "1.4.2")),
            "workers still have 1.4.1: its letters are replayed once all have 1.4.2",
        ),
        ((("pay", "1.4.2"), ("pay", "1.5")), ""),
    ],
)
def test_what_is_still_to_come_before_letters_go_back_is_said(workers, said):
    announced = [{"handlers": [name], "handler_versions": {name: version}} for name, version in workers]
    found = explain_fix_wait("pay", "1.4.2", announced)
    assert found.startswith(said) if said else not found
