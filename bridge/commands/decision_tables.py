"""What was decided of topics and policies, as people read it."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bridge.commands.printing import cell, print_table, say
from bridge.records import policies


def print_halts(console: Console, found: dict[str, Any]) -> None:
    """How each topic stands after it was halted or resumed, and who has to hear of it yet."""
    for topic, how in found["topics"].items():
        if how["halted"]:
            say(console, f"{topic} is halted: {how['why']}. `bridge resume {topic}` goes on from exactly there.")
        elif how["changed"]:
            say(console, f"{topic} goes on.")
        else:
            say(console, f"{topic} is not halted.")
        _print_unheard(console, how)
    if not found["topics"]:
        say(console, "no topic is halted.")


def print_policies(console: Console, found: dict[str, Any]) -> None:
    """A row a handler and option that is not Celery's or ours by default; what was changed, with who and why."""
    table = Table("handler", "option", "value", "the code says", "changed", box=SIMPLE_HEAD, pad_edge=False)
    for handler, each in found.items():
        changed, first = each["changed"], cell(handler)
        for option, value in {**each["policy"], **{name: one["is"] for name, one in changed.items()}}.items():
            # Without an end is a value, and no limit that nobody has set.
            if option not in changed and option != "max_retries" and value in (None, []):
                continue
            one = changed.get(option)
            who = "" if one is None else f"by {one['by']} at {one['at']}: {one['why']}"
            code = "" if one is None else policies.word(one["was"])
            table.add_row(first, option, cell(policies.word(value)), cell(code), cell(who))
            first = ""
        table.add_section()
    print_table(console, table)
    for handler, each in found.items():
        if each["fault"]:
            say(console, f"{handler}: what was changed is not in force: {each['fault']}", "red")


def print_policy_decision(console: Console, handler: str, found: dict[str, Any]) -> None:
    """How a handler's policy stands after it was changed, and who has to hear of it yet."""
    print_policies(console, {handler: found})
    if not found["changed"]:
        say(console, f"the policy of {handler} is its code's.")
    for topic, why in found["tiers"].items():
        say(console, f"  {topic}: {why}: waits as long as that go through the next that there is", "yellow")
    _print_unheard(console, found)


def print_policy_history(console: Console, handler: str, found: list[dict[str, Any]]) -> None:
    """A line for each change, the latest first."""
    for each in found:
        parts = [policies.words(each["set"])] if each["set"] else []
        if each["unset"]:
            parts.append(f"unset {' '.join(each['unset'])}")
        say(console, f"{each['at']}  {', '.join(parts)}  by {each['by']}: {each['why']}")
    if not found:
        say(console, f"the policy of {handler} was never changed.")


def _print_unheard(console: Console, how: dict[str, Any]) -> None:
    if how.get("unpublished"):
        say(
            console,
            "  NOT SAFE YET: Redis alone has it. If that is wiped before a bridge has told Kafka, it is lost, and "
            f"what Kafka has stands again. Say it once more when Kafka answers. ({how['unpublished']})",
            "yellow",
        )
    if how.get("unmirrored"):
        say(console, f"  Redis does not have it yet, a bridge tells it: {how['unmirrored']}", "yellow")
