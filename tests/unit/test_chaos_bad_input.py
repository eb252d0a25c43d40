"""What the bad input of the chaos suite is made of."""

from itertools import islice

from tests.chaos.bad_input import LIMIT, NAMES, VALUES, huge, records


def test_the_same_seed_gives_the_same_records_and_a_longer_run_begins_as_a_shorter_one():
    assert list(records(5, 50)) == list(islice(records(5, 500), 50)) != list(records(6, 50))


def test_every_kind_of_value_comes_and_every_name_of_ours_among_the_headers():
    found = list(records(1, 3_000))
    assert {bad.label.partition(",")[0] for bad in found} == set(VALUES)
    assert {name for bad in found for name, _ in bad.headers} >= set(NAMES)


def test_huge_values_are_as_long_as_a_topic_takes_and_not_longer():
    assert all(450_000 < len(bad.value or b"") < LIMIT for bad in huge(1, 50))
