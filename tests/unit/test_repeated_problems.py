"""One cause is one problem, whether bridges and workers or the dead-letter store report it."""

from bridge.inspection.status_report import add_problems, make_problem_data
from bridge.problems.problem import Problem


def dead(handler, many):
    return Problem(f"{many} of {handler} are dead", "dead", "dead", handler=handler, many=many, of="deliveries")


def grows(handler, many, group=1):
    return Problem(f"{many} of {handler} grow", "grows", "grows", handler=handler, group=group, many=many)


def said(status, *found):
    whole = add_problems(status, found)
    assert [each["sentence"] for each in whole["problem_values"]] == whole["problems"]
    return whole["problems"]


def test_letters_of_groups_that_grow_are_not_told_as_dead_deliveries_besides():
    other = Problem("Kafka is full", "topic", "full")
    status = {"group": "shop", **make_problem_data([other, dead("charge", 30), dead("notify", 4)])}
    found = said(status, grows("charge", 20), grows("charge", 12, 2))
    assert found == ["Kafka is full", "4 of notify are dead", "20 of charge grow", "12 of charge grow"]
    assert add_problems(status, [])["group"] == "shop"


def test_where_more_are_dead_than_grow_both_are_told():
    status = make_problem_data([dead("charge", 30), dead("charge", 5)])
    assert said(status, grows("charge", 34)) == ["30 of charge are dead", "5 of charge are dead", "34 of charge grow"]
    assert said(status, grows("charge", 35)) == ["35 of charge grow"]
    assert said(status) == ["30 of charge are dead", "5 of charge are dead"]
