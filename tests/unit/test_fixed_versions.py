"""Which versions of the handlers' code have what was mended in one."""

import pytest

from bridge.deadletters.versions import has, has_order


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
        ("", "1.5", False),
        ("", "", False),
    ],
)
def test_the_version_itself_and_later_ones_have_what_was_mended_in_it(version, fixed_in, mended):
    assert has(version, fixed_in) is mended


def test_a_commit_has_no_order():
    assert has_order("1.4.2")
    assert not has_order("3f2c1ab")
