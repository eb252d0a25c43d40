"""The words of each problem are in its row, and the function that finds it fills them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import NamedTuple

from bridge.problems.problem import make_problem
from bridge.problems.problem_row import ProblemRow, ProblemWords
from bridge.problems.problem_table import PROBLEM_TABLE
from tests.source_tree import parse_source

BRIDGE = Path(__file__).parents[2] / "bridge"
ROWS = {row.identifier.upper(): row for row in PROBLEM_TABLE}
#: What a problem has besides its words.
OWN = {"topic", "handler", "group", "queue", "dependency", "handlers", "since", "many", "of", "lost"}


class MakingCall(NamedTuple):
    """A call of `make_problem` in the product."""

    where: str
    row: ProblemRow
    cases: tuple[str, ...]
    given: frozenset[str]


@cache
def find_calls() -> tuple[MakingCall, ...]:
    return tuple(_read_calls())


def find_files(function: str) -> list[Path]:
    """Return the files of the product that call a function: only these are worth their syntax trees."""
    return [file for file in sorted(BRIDGE.rglob("*.py")) if f"{function}(" in file.read_text()]


def _read_calls() -> Iterator[MakingCall]:
    for file in find_files(make_problem.__name__):
        for node in ast.walk(parse_source(file)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == make_problem.__name__:
                row, *case = node.args
                assert isinstance(row, ast.Name)
                texts = [part.value for each in case for part in ast.walk(each) if isinstance(part, ast.Constant)]
                given = frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
                yield MakingCall(f"{file.name}:{node.lineno}", ROWS[row.id], tuple(map(str, texts)) or ("",), given)


def list_fields(*templates: str) -> set[str]:
    return {name for template in templates for _, name, _, _ in Formatter().parse(template) if name}


def list_cases(row: ProblemRow) -> set[str]:
    return {""} if isinstance(row.words, ProblemWords) else {*row.words}


def test_each_case_of_a_problem_is_made_and_no_other():
    made: dict[str, set[str]] = {row.identifier: set() for row in PROBLEM_TABLE}
    for call in find_calls():
        made[call.row.identifier] |= {*call.cases}
    assert made == {row.identifier: list_cases(row) for row in PROBLEM_TABLE}


def test_what_makes_a_problem_gives_every_value_that_its_words_name_and_no_other():
    for call in find_calls():
        named = {
            field
            for case in call.cases
            for words in [call.row.choose_words(case)]
            for field in list_fields(words.sentence, words.what, words.do)
        } - {"what"}
        assert named - call.given == set(), call.where
        assert call.given - named - OWN == set(), call.where


def test_every_problem_of_the_product_is_made_in_the_words_of_its_row():
    makers = {
        file.relative_to(BRIDGE).as_posix()
        for file in find_files("Problem")
        for node in ast.walk(parse_source(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem"
    }
    assert makers == {"problems/problem.py"}


def test_a_problem_says_what_it_is_about_in_the_words_of_its_case():
    problem = make_problem(ROWS["DELIVERY_OLD"], "handler removed", topic="orders", handler="h.a", began="since noon")
    assert problem.startswith("Deliveries of 'orders' to h.a wait, the oldest since noon: the handler was renamed")
    assert (problem.what, problem.do) == (
        "Deliveries wait for h.a, which no worker knows",
        "deploy it to a worker again",
    )
    assert (problem.kind, problem.topic, problem.handler, problem.of) == ("old", "orders", "h.a", "")


def test_values_with_braces_are_shown_as_they_are():
    assert "by {x}: {0}." in make_problem(
        ROWS["TOPIC_HALTED"], topic="o", began="now", by="{x}", why="{0}", waiting="", record=""
    )
