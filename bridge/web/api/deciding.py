"""What people decide for the group: halts and policies; and policies tried on dead letters."""

from collections.abc import Mapping
from typing import Any

from bridge.commands import halt as halts
from bridge.commands import policy as policies
from bridge.commands.unquoted import unquoted_halt
from bridge.errors import PolicyRefused
from bridge.web.api import filters
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.shapes import standing as shapes
from bridge.web.deciding import note, unsafe


def halted(asked: Asked) -> Answer:
    """The topics that are halted."""
    found = halts.halted(asked.desk.settings)
    return Answer(shapes.Halts(topics={topic: _unquoted(asked, topic, halt) for topic, halt in found.items()}))


def halt(asked: Asked) -> Answer:
    """Halt a topic: nothing of it is read or run from now on."""
    desk, topic, why, by = asked.desk, asked.path["topic"], _why(asked), asked.who.name
    stands = halts.halted(desk.settings).get(topic)
    if stands and (stands["by"], stands["why"]) == (by, why):
        return Answer(shapes.Halted.model_validate({"halted": True, **_unquoted(asked, topic, stands)}))
    found = halts.halt(desk.app, desk.settings, desk.routes, [topic], why, by)["topics"][topic]
    note(asked.console, desk, by, "halt", f"halted {topic}: {why}")
    return _topic(asked, found)


def resume(asked: Asked) -> Answer:
    """Let it go on, from exactly where it stood."""
    desk, topic, why, by = asked.desk, asked.path["topic"], _why(asked), asked.who.name
    found = halts.resume(desk.app, desk.settings, desk.routes, [topic], why, by)["topics"][topic]
    if found["changed"]:
        note(asked.console, desk, by, "resume", f"resumed {topic}: {why}")
    return _topic(asked, found)


def policies_of_all(asked: Asked) -> Answer:
    """Each handler's policy."""
    found = policies.policies(asked.desk.app, asked.desk.settings, asked.desk.routes)
    return Answer(shapes.Policies.model_validate({"handlers": found}))


def policy(asked: Asked) -> Answer:
    """A handler's policy."""
    name = asked.path["name"]
    found = policies.policies(asked.desk.app, asked.desk.settings, asked.desk.routes, name)
    return Answer(shapes.Policy.model_validate(found[name]))


def change(asked: Asked) -> Answer:
    """Set options of it, or go back to what the code says."""
    desk, body, name = asked.desk, asked.body, asked.path["name"]
    why, by = _why(asked), asked.who.name
    words = [f"{option}={value}" for option, value in body.set.items()]
    if bool(words) == bool(body.unset):
        raise PolicyRefused("Name what to `set`, or what to `unset`: one of both. Nothing was changed.")
    if words:
        found = policies.set_policy(desk.app, desk.settings, desk.routes, name, words, why, by)
    else:
        found = policies.unset_policy(desk.app, desk.settings, desk.routes, name, body.unset, why, by)
    said = ", ".join(words) or f"unset {', '.join(body.unset)}"
    note(asked.console, desk, by, "policy", f"{said} of {name}: {why}")
    told = [*unsafe(found), *(f"{topic}: {fault}" for topic, fault in found["tiers"].items())]
    kept = {each: found[each] for each in ("policy", "changed", "fault")}
    return Answer(shapes.Policy.model_validate({**kept, "warnings": told}))


def simulate(asked: Asked) -> Answer:
    """Say what a policy would have made of a handler's letters."""
    wanted = asked.masks.check(filters.meant(asked.body.letters))
    found = asked.desk.simulations.run(asked.path["name"], asked.body.options, wanted)
    return Answer(shapes.Simulation.model_validate(found.to_data()))


def _unquoted(asked: Asked, topic: str, halt: Mapping[str, Any]) -> dict[str, Any]:
    """A halt, without what its handler said where that may quote what somebody does not see."""
    return unquoted_halt(halt) if asked.masks.of(topic) else dict(halt)


def _topic(asked: Asked, found: Mapping[str, Any]) -> Answer:
    found = _unquoted(asked, asked.path["topic"], found)
    kept = {name: value for name, value in found.items() if name not in ("unpublished", "unmirrored")}
    return Answer(shapes.Halted.model_validate({**kept, "warnings": unsafe(found)}))


def _why(asked: Asked) -> str:
    why = " ".join(str(asked.body.why).split())
    if not why:
        raise PolicyRefused("Say why: it is for whoever is on call next. Nothing was changed.")
    return why
