"""One cause is one line for people, with what follows from it below; nothing is left out."""

from typing import Any, NamedTuple

import pytest

from bridge.inspection.status_report import make_problem_data
from bridge.problems.problem import Problem
from bridge.problems.problem_causes import ProblemCause, group_by_cause
from bridge.problems.problem_table import PROBLEM_ROWS, PROBLEM_TABLE


class Route(NamedTuple):
    name: str
    topics: tuple[str, ...]
    queue: str = "q"
    needs: tuple[str, ...] = ()


ROUTES = (
    Route("charge", ("orders",), needs=("bank",)),
    Route("notify", ("orders", "refunds")),
    Route("ship", ("parcels",), "slow"),
)


def values(*problems: str):
    """Problems as `kind subject=value …`, in the order of `status`."""
    made = []
    for text in problems:
        kind, *subject = text.split(", ")
        named: dict[str, Any] = dict(each.split("=") for each in subject)
        if "group" in named:
            named["group"] = int(named["group"])
        if "handlers" in named:
            named["handlers"] = tuple(named["handlers"].split("+"))
        made.append(Problem(text, kind, text, **named, many=1, of="things"))
    return make_problem_data(made)["problem_values"]


def causes(*problems: str) -> dict[str, list[str]]:
    found = group_by_cause(values(*problems), ROUTES)
    return {each.head["sentence"]: [effect["sentence"] for effect in each.effects] for each in found}


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        pytest.param([], {}, id="no problem"),
        pytest.param(["clock", "recorder"], {"clock": [], "recorder": []}, id="two that have nothing in common"),
        pytest.param(
            ["failing, handler=charge", "dead, handler=charge", "grows, handler=charge, group=1"],
            {"failing, handler=charge": ["dead, handler=charge", "grows, handler=charge, group=1"]},
            id="a failing handler has its dead letters and their groups",
        ),
        pytest.param(
            ["failing, handler=charge", "grows, handler=ship, group=1"],
            {"failing, handler=charge": [], "grows, handler=ship, group=1": []},
            id="another handler's groups are another cause",
        ),
        pytest.param(
            ["grows, handler=ship, group=1", "grows, handler=ship, group=2", "grows, group=3"],
            {"grows, handler=ship, group=1": ["grows, handler=ship, group=2"], "grows, group=3": []},
            id="groups of one handler are one, those of other programs are not of it",
        ),
        pytest.param(
            ["failing, handler=charge", "grows, handler=ship, group=1", "grows, handlers=charge+ship"],
            {
                "failing, handler=charge": ["grows, handlers=charge+ship"],
                "grows, handler=ship, group=1": ["grows, handlers=charge+ship"],
            },
            id="further groups are below what explains each of their handlers",
        ),
        pytest.param(
            ["failing, handler=charge", "grows, handlers=charge+ship"],
            {"failing, handler=charge": [], "grows, handlers=charge+ship": []},
            id="further groups of a handler that nothing explains stay a line",
        ),
        pytest.param(
            ["dying, topic=orders", "failing, handler=charge"],
            {"failing, handler=charge": ["dying, topic=orders"]},
            id="a topic whose deliveries die is where its handler is, at the place of the first of both",
        ),
        pytest.param(
            ["dying, topic=orders", "failing, handler=charge", "failing, handler=notify"],
            {
                "failing, handler=charge": ["dying, topic=orders"],
                "failing, handler=notify": ["dying, topic=orders"],
            },
            id="what two causes explain is below both",
        ),
        pytest.param(
            ["no worker, queue=slow", "paused, topic=parcels, queue=slow", "behind, topic=parcels"],
            {"no worker, queue=slow": ["paused, topic=parcels, queue=slow", "behind, topic=parcels"]},
            id="without workers partitions are paused, and lag grows",
        ),
        pytest.param(
            ["no worker, queue=slow", "paused, topic=orders, queue=q"],
            {"no worker, queue=slow": [], "paused, topic=orders, queue=q": []},
            id="another queue is another cause",
        ),
        pytest.param(
            ["breaker, dependency=bank", "failing, handler=charge", "failing, handler=ship"],
            {"breaker, dependency=bank": ["failing, handler=charge"], "failing, handler=ship": []},
            id="a dependency explains the handlers that need it",
        ),
        pytest.param(
            ["silent", "obstacle", "unassigned, topic=orders", "overdue, topic=orders"],
            {"silent": ["obstacle", "unassigned, topic=orders", "overdue, topic=orders"]},
            id="a server that does not answer explains what bridges wait for",
        ),
        pytest.param(
            ["lost, topic=orders, handler=charge", "failing, handler=charge"],
            {"lost, topic=orders, handler=charge": [], "failing, handler=charge": []},
            id="lost records are never below anything",
        ),
    ],
)
def test_a_cause_has_below_it_what_follows_from_it(problems, expected):
    assert causes(*problems) == expected


def test_each_problem_is_a_cause_or_below_one():
    every = values(*(f"{row.kind}, topic=orders, handler=charge, queue=q, group=1" for row in PROBLEM_TABLE))
    shown = {member["id"] for cause in group_by_cause(every, ROUTES) for member in cause.members}
    assert shown == {row.identifier for row in PROBLEM_TABLE}


def test_causes_in_the_table_are_rows_without_a_cycle():
    above = {row.identifier: {cause.identifier for cause in row.causes} - {row.identifier} for row in PROBLEM_TABLE}
    assert set().union(*above.values()) <= above.keys()
    while ends := {name for name, causes in above.items() if not causes}:
        above = {name: causes - ends for name, causes in above.items() if name not in ends}
    assert above == {}


def test_problems_that_tell_of_lost_records_are_below_no_other():
    assert not any(PROBLEM_ROWS[kind].causes for kind in ("lost", "log", "missed", "unpublished"))


def cause_of(*problems: Problem) -> ProblemCause:
    (cause,) = group_by_cause(make_problem_data(problems)["problem_values"], ROUTES)
    return cause


def grows(group: int | None, many: int, since: float, of: str = "open letters") -> Problem:
    return Problem(
        f"group {group}", "grows", f"Group {group}", handler="ship", group=group, since=since, many=many, of=of
    )


def test_groups_of_one_handler_are_counted_together_with_the_earliest_time():
    cause = cause_of(grows(1, 30, 2_000.0), grows(2, 4, 1_000.0), grows(None, 7, 3_000.0, "groups"))
    assert cause.what == "9 groups of dead letters of ship grow"
    assert (cause.many, cause.head["of"], cause.since) == (34, "open letters", "1970-01-01T00:16:40+00:00")


def test_a_cause_keeps_its_own_name_count_and_time_whatever_follows():
    failing = Problem("x", "failing", "Attempts of ship fail", handler="ship", since=5_000.0, many=12, of="attempts")
    cause = cause_of(failing, grows(1, 30, 2_000.0), grows(2, 4, 1_000.0))
    assert (cause.what, cause.many, cause.since) == ("Attempts of ship fail", 12, "1970-01-01T01:23:20+00:00")
    assert [each["group"] for each in cause.effects] == [1, 2]


def test_what_is_not_known_of_a_cause_stays_not_known():
    unknown = Problem("x", "failing", "x", handler="ship", lost=None)
    assert (cause_of(unknown).since, cause_of(unknown).many, cause_of(unknown).lost) == (None, None, None)
    assert cause_of(unknown, grows(1, 30, 2_000.0)).lost is None
