"""The API of halts and policies: list, halt, resume, change, and simulate on dead letters."""

from collections.abc import Mapping
from typing import Any, Final

from bridge.console.api import letter_json
from bridge.console.api.api_operation import ApiRequest, Effect, OperationTable
from bridge.console.api.schemas import inspection_schema as shapes
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import ScopeRule
from bridge.console.decision_audit import list_durability_warnings, note_decision
from bridge.console.narrowed_status import ScopedView
from bridge.console.thread_pools import WaitKind
from bridge.errors import HaltRefused, PolicyRefused
from bridge.formats.halt_scope import HaltScope
from bridge.inspection.status import REDACTED, redact_halt
from bridge.operator_actions import handler_halt
from bridge.operator_actions import handler_policy as policies
from bridge.operator_actions import topic_halt as halts
from bridge.operator_actions.handler_halt import describe_halt_subject, is_halt_of, read_scope

operations: Final = OperationTable()

_SERVERS: Final = WaitKind.SERVERS


@operations.declare("GET /halts", may.VIEW, "listHalts", waits=_SERVERS, scope=ScopeRule.NARROWED)
def list_halts(asked: ApiRequest) -> shapes.Halts:
    """Return the topics, handlers and keys that are halted, and why."""
    found, handlers = halts.read_halts(asked.desk.settings), handler_halt.read_handler_halts(asked.desk.settings)
    return shapes.Halts(
        topics={topic: _redact_halt(asked, topic, halt) for topic, halt in found.items() if _covers(asked, topic)},
        handlers=[_redact_key(asked, each) for each in handlers if _covers(asked, each["topic"])],
    )


@operations.declare(
    "POST /topics/{topic}/halt", may.HALT_TOPIC, "haltTopic", Effect(), waits=_SERVERS, scope=ScopeRule.TOPIC
)
def halt_topic(asked: ApiRequest, body: shapes.HaltDecision) -> shapes.Halted:
    """Halt a topic, or a handler or key of it: nothing of it runs until somebody resumes it."""
    desk, topic, why, by = asked.desk, asked.path["topic"], _require_why(body.why), asked.who.name
    if (scope := _read_scope(topic, body)) is not None:
        known = handler_halt.read_handler_halts(desk.settings, topic)
        halted = next((each for each in known if is_halt_of(each, scope)), None)
        if halted and (halted["by"], halted["why"]) == (by, why):
            return _answer_handler(asked, {"halted": True, **halted})
        found = handler_halt.halt_handlers(desk.app, desk.settings, desk.routes, [scope], why, by)["handlers"][0]
        note_decision(asked.console, desk, by, "halt", f"halted {describe_halt_subject(scope)}: {why}")
        return _answer_handler(asked, found)
    stands = halts.read_halts(desk.settings).get(topic)
    if stands and (stands["by"], stands["why"]) == (by, why):
        return shapes.Halted.model_validate({"halted": True, **_redact_halt(asked, topic, stands)})
    found = halts.halt_topics(desk.app, desk.settings, desk.routes, [topic], why, by)["topics"][topic]
    note_decision(asked.console, desk, by, "halt", f"halted {topic}: {why}")
    return _answer_topic(asked, found)


@operations.declare(
    "POST /topics/{topic}/resume", may.RESUME_TOPIC, "resumeTopic", Effect(), waits=_SERVERS, scope=ScopeRule.TOPIC
)
def resume_topic(asked: ApiRequest, body: shapes.HaltDecision) -> shapes.Halted:
    """Resume a topic, or a handler or key of it, from exactly where it stopped."""
    desk, topic, why, by = asked.desk, asked.path["topic"], _require_why(body.why), asked.who.name
    if (scope := _read_scope(topic, body)) is not None:
        found = handler_halt.resume_handlers(desk.app, desk.settings, desk.routes, [scope], why, by)["handlers"][0]
        if found["changed"]:
            note_decision(asked.console, desk, by, "resume", f"resumed {describe_halt_subject(scope)}: {why}")
        return _answer_handler(asked, found)
    found = halts.resume_topics(desk.app, desk.settings, desk.routes, [topic], why, by)["topics"][topic]
    if found["changed"]:
        note_decision(asked.console, desk, by, "resume", f"resumed {topic}: {why}")
    return _answer_topic(asked, found)


@operations.declare("GET /policies", may.VIEW, "listPolicies", waits=_SERVERS, scope=ScopeRule.NARROWED)
def list_policies(asked: ApiRequest) -> shapes.Policies:
    """Return each handler's policy, and what was changed of it."""
    found = policies.read_policies(asked.desk.app, asked.desk.settings, asked.desk.routes)
    view = ScopedView(asked.who.scope, asked.desk.settings.group, asked.console.whole_routes)
    return shapes.Policies.model_validate({"handlers": {name: found[name] for name in found if name in view.whole}})


@operations.declare("GET /policies/{name}", may.VIEW, "getPolicy", waits=_SERVERS, scope=ScopeRule.WHOLE_HANDLER)
def show_policy(asked: ApiRequest) -> shapes.Policy:
    """Return a handler's policy, and what was changed of it."""
    name = asked.path["name"]
    found = policies.read_policies(asked.desk.app, asked.desk.settings, asked.desk.routes, name)
    return shapes.Policy.model_validate(found[name])


@operations.declare(
    "POST /policies/{name}", may.CHANGE_POLICY, "changePolicy", Effect(), waits=_SERVERS, scope=ScopeRule.WHOLE_HANDLER
)
def change_policy(asked: ApiRequest, body: shapes.Changing) -> shapes.Policy:
    """Change options of a handler's policy, for all workers."""
    desk, name = asked.desk, asked.path["name"]
    why, by = _require_why(body.why), asked.who.name
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
    return shapes.Policy.model_validate({**kept, "warnings": told})


@operations.declare(
    "POST /policies/{name}/simulate", may.CHANGE_POLICY, "simulatePolicy", waits=_SERVERS, scope=ScopeRule.WHOLE_HANDLER
)
def simulate_policy(asked: ApiRequest, body: shapes.Trying) -> shapes.Simulation:
    """Return what a policy would have made of a handler's dead letters; nothing is changed."""
    wanted = asked.masks.check(letter_json.read_body_filter(body.letters))
    found = asked.desk.simulations.run(asked.path["name"], body.options, wanted)
    return shapes.Simulation.model_validate(found.to_data())


def _covers(asked: ApiRequest, topic: str) -> bool:
    return asked.who.scope.covers(topic, asked.desk.settings.group)


def _redact_halt(asked: ApiRequest, topic: str, halt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a halt without the handler's words, which may quote what the caller may not see."""
    return redact_halt(halt) if asked.masks.find_fields(topic) else dict(halt)


def _redact_key(asked: ApiRequest, halted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the halt of a handler or key without a key that the caller may not see."""
    hidden = halted["key"] is not None and not asked.masks.searches_keys([halted["topic"]])
    return {**halted, "key": REDACTED} if hidden else dict(halted)


def _read_scope(topic: str, body: shapes.HaltDecision) -> HaltScope | None:
    """Return the handler or key that a request names; `None`: the whole topic."""
    if "" in (body.handler, body.key):
        # A variable of a script may be empty: that is not to halt or resume more than was meant.
        raise HaltRefused("The `handler` or the `key` is empty: name one, or omit it. Nothing was changed.")
    if body.handler is None:
        if body.key is None:
            return None
        raise HaltRefused("A key is one key of a handler: name the `handler` too. Nothing was changed.")
    return read_scope(topic, body.handler, body.key)


def _answer_handler(asked: ApiRequest, found: Mapping[str, Any]) -> shapes.Halted:
    kept = {name: value for name, value in found.items() if name not in ("unpublished", "unmirrored")}
    return shapes.Halted.model_validate({**_redact_key(asked, kept), "warnings": list_durability_warnings(found)})


def _answer_topic(asked: ApiRequest, found: Mapping[str, Any]) -> shapes.Halted:
    found = _redact_halt(asked, asked.path["topic"], found)
    kept = {name: value for name, value in found.items() if name not in ("unpublished", "unmirrored")}
    return shapes.Halted.model_validate({**kept, "warnings": list_durability_warnings(found)})


def _require_why(said: str) -> str:
    why = " ".join(said.split())
    if not why:
        raise PolicyRefused("Say why: it is for whoever is on call next. Nothing was changed.")
    return why
