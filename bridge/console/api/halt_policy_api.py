"""The API of halts and policies: list, halt, resume, change, and simulate on dead letters."""

from collections.abc import Mapping
from typing import Any

from bridge.console.api import letter_json
from bridge.console.api.api_request import ApiAnswer, ApiRequest
from bridge.console.api.schemas import inspection_schema as shapes
from bridge.console.decision_audit import list_durability_warnings, note_decision
from bridge.errors import PolicyRefused
from bridge.inspection import handler_policy as policies
from bridge.inspection import topic_halt as halts
from bridge.inspection.redacted_status import redact_halt


def list_halts(asked: ApiRequest) -> ApiAnswer:
    """Return the halted topics."""
    found = halts.read_halts(asked.desk.settings)
    return ApiAnswer(shapes.Halts(topics={topic: _redact_halt(asked, topic, halt) for topic, halt in found.items()}))


def halt_topic(asked: ApiRequest) -> ApiAnswer:
    """Halt a topic: nothing of it is read or run from now on."""
    desk, topic, why, by = asked.desk, asked.path["topic"], _require_why(asked), asked.who.name
    stands = halts.read_halts(desk.settings).get(topic)
    if stands and (stands["by"], stands["why"]) == (by, why):
        return ApiAnswer(shapes.Halted.model_validate({"halted": True, **_redact_halt(asked, topic, stands)}))
    found = halts.halt_topics(desk.app, desk.settings, desk.routes, [topic], why, by)["topics"][topic]
    note_decision(asked.console, desk, by, "halt", f"halted {topic}: {why}")
    return _answer_topic(asked, found)


def resume_topic(asked: ApiRequest) -> ApiAnswer:
    """Resume a topic from exactly where it stopped."""
    desk, topic, why, by = asked.desk, asked.path["topic"], _require_why(asked), asked.who.name
    found = halts.resume_topics(desk.app, desk.settings, desk.routes, [topic], why, by)["topics"][topic]
    if found["changed"]:
        note_decision(asked.console, desk, by, "resume", f"resumed {topic}: {why}")
    return _answer_topic(asked, found)


def list_policies(asked: ApiRequest) -> ApiAnswer:
    """Return the policy of each handler."""
    found = policies.read_policies(asked.desk.app, asked.desk.settings, asked.desk.routes)
    return ApiAnswer(shapes.Policies.model_validate({"handlers": found}))


def show_policy(asked: ApiRequest) -> ApiAnswer:
    """Return a handler's policy."""
    name = asked.path["name"]
    found = policies.read_policies(asked.desk.app, asked.desk.settings, asked.desk.routes, name)
    return ApiAnswer(shapes.Policy.model_validate(found[name]))


def change_policy(asked: ApiRequest) -> ApiAnswer:
    """Set options of a policy, or return to the values in the code."""
    desk, body, name = asked.desk, asked.body, asked.path["name"]
    why, by = _require_why(asked), asked.who.name
    words = [f"{option}={value}" for option, value in body.set.items()]
    if bool(words) == bool(body.unset):
        raise PolicyRefused("Name what to `set`, or what to `unset`: one of both. Nothing was changed.")
    if words:
        found = policies.set_policy(desk.app, desk.settings, desk.routes, name, words, why, by)
    else:
        found = policies.unset_policy(desk.app, desk.settings, desk.routes, name, body.unset, why, by)
    said = ", ".join(words) or f"unset {', '.join(body.unset)}"
    note_decision(asked.console, desk, by, "policy", f"{said} of {name}: {why}")
    told = [*list_durability_warnings(found), *(f"{topic}: {fault}" for topic, fault in found["tiers"].items())]
    kept = {each: found[each] for each in ("policy", "changed", "fault")}
    return ApiAnswer(shapes.Policy.model_validate({**kept, "warnings": told}))


def simulate_policy(asked: ApiRequest) -> ApiAnswer:
    """Return what a policy would have made of a handler's letters."""
    wanted = asked.masks.check(letter_json.read_body_filter(asked.body.letters))
    found = asked.desk.simulations.run(asked.path["name"], asked.body.options, wanted)
    return ApiAnswer(shapes.Simulation.model_validate(found.to_data()))


def _redact_halt(asked: ApiRequest, topic: str, halt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a halt without the handler's words, which may quote what the caller may not see."""
    return redact_halt(halt) if asked.masks.of(topic) else dict(halt)


def _answer_topic(asked: ApiRequest, found: Mapping[str, Any]) -> ApiAnswer:
    found = _redact_halt(asked, asked.path["topic"], found)
    kept = {name: value for name, value in found.items() if name not in ("unpublished", "unmirrored")}
    return ApiAnswer(shapes.Halted.model_validate({**kept, "warnings": list_durability_warnings(found)}))


def _require_why(asked: ApiRequest) -> str:
    why = " ".join(str(asked.body.why).split())
    if not why:
        raise PolicyRefused("Say why: it is for whoever is on call next. Nothing was changed.")
    return why
