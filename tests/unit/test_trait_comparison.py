"""What sets some letters apart from handled records and from other letters."""

import random
from collections.abc import Mapping

import pytest

from bridge.deadletters.model.trait_comparison import LetterTrait, TraitSide, find_common_traits

NONE = TraitSide()


def side(*traits: Mapping[str, str | None], unread: int = 0) -> TraitSide:
    return TraitSide([{("field", name): says for name, says in each.items()} for each in traits], unread)


def test_what_half_have_and_others_less_often_is_in_common_and_what_sets_apart_most_comes_first() -> None:
    these = side(*({"currency": "EUR", "country": "DE", "id": str(n)} for n in range(10)))
    others = side(*({"currency": "EUR", "country": "DE" if n else "FR", "id": str(n)} for n in range(2)))
    assert find_common_traits(these, others, NONE).traits == [LetterTrait("field", "country", "DE", 10, 10, 1, 2)]
    found = find_common_traits(these, NONE, NONE).traits
    assert [(each.name, each.of_others) for each in found] == [("country", 0), ("currency", 0)]


def test_what_nearly_all_other_letters_have_too_sets_nothing_apart() -> None:
    these, others = side(*({"currency": "EUR"} for _ in range(57))), [{"currency": "EUR"}] * 947 + [{}] * 6
    assert find_common_traits(these, side(*others), NONE).traits == []


def test_what_others_have_and_these_lack_is_in_common_too() -> None:
    found = find_common_traits(side({}, {}, {"currency": "EUR"}), side({"currency": "EUR"}, {"currency": None}), NONE)
    assert found.traits == [LetterTrait("field", "currency", None, 2, 3, 0, 2)]


def test_of_a_value_that_is_not_read_no_field_is_said_to_be_missing() -> None:
    assert find_common_traits(side({}, {"a": "1"}, unread=1), side({"a": "2"}), NONE).traits == [
        LetterTrait("field", "a", "1", 1, 1, 0, 1)
    ]


def test_letters_whose_values_are_all_unreadable_are_compared_by_what_else_they_have() -> None:
    these = TraitSide([{("key", ""): "k", ("field", "a"): None} for _ in range(20)], unread=20)
    handled = TraitSide([{("key", ""): str(number), ("field", "a"): "1"} for number in range(500)])
    assert [each.what for each in find_common_traits(these, NONE, handled).traits] == ["key"]


def test_beside_handled_records_what_all_letters_have_sets_none_apart() -> None:
    these = side(*({"country": "CH", "currency": "CHF"} for _ in range(50)))
    others = side({"country": "DE", "currency": "CHF"})
    handled = side(*({"country": "CH", "currency": "CHF" if n < 10 else "EUR"} for n in range(500)))
    assert find_common_traits(these, others, handled).traits == [
        LetterTrait("field", "currency", "CHF", 50, 50, 1, 1, 10, 500)
    ]


@pytest.mark.parametrize(("letters", "is_told"), [(3, False), (20, True)])
def test_a_few_letters_tell_nothing_that_chance_may_have_done(letters: int, is_told: bool) -> None:
    these = side(*({"currency": "EUR"} for _ in range(letters)))
    handled = side(*({"currency": "EUR" if n % 2 else "CHF"} for n in range(1000)))
    assert bool(find_common_traits(these, NONE, handled).traits) is is_told


def test_planted_causes_are_found_and_little_else() -> None:
    """Values of 20 fields; what fails has one of them, or two together, and now and then something else fails."""
    chance, planted, found, right = random.Random(7), 0, 0, 0
    for _ in range(40):
        sizes = {f"f{number}": chance.choice([2, 3, 5, 20, 200]) for number in range(20)}
        cause = {name: str(chance.randrange(sizes[name])) for name in chance.sample([*sizes], chance.choice([1, 2]))}
        shares = {name: chance.choice([0.01, 0.1, 0.3]) for name in cause}

        def draw(
            *,
            fails: bool,
            sizes: Mapping[str, int] = sizes,
            cause: dict[str, str] = cause,
            shares: Mapping[str, float] = shares,
        ) -> dict[str, str]:
            value = {name: str(chance.randrange(size)) for name, size in sizes.items()}
            if fails and chance.random() < 0.95:
                return value | cause
            # Successes have each part of the cause now and then, as often as `shares` says.
            return value | {
                name: says if chance.random() < shares[name] else f"not {says}" for name, says in cause.items()
            }

        these = side(*(draw(fails=True) for _ in range(chance.choice([30, 200]))))
        handled = side(*(draw(fails=False) for _ in range(500)))
        told = {(each.name, each.says) for each in find_common_traits(these, NONE, handled).traits}
        planted, found = planted + len(cause), found + len(told)
        right += len(told & {*cause.items()})
    assert right / planted >= 0.98, "recall"
    assert right / found >= 0.98, "precision"
