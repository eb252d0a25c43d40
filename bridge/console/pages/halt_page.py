"""The page that halts and resumes a topic, or a handler or key of it: the address's `handler` and `key` say which."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.confirmation import UndoForm, take_back
from bridge.console.decision_audit import list_durability_warnings
from bridge.console.pages import status_rows
from bridge.console.pages.form_submission import answer_done, note_decided, require_why
from bridge.deadletters.db.audit_rows import AuditEntry, EntryFilter
from bridge.errors import UnknownHandler, UnknownTopic
from bridge.formats.halt_scope import HaltScope
from bridge.inspection.status import REDACTED, redact_halt
from bridge.operator_actions import handler_halt
from bridge.operator_actions import topic_halt as commands
from bridge.operator_actions.handler_halt import (
    describe_halt_subject,
    halt_handlers,
    is_halt_of,
    read_scope,
    resume_handlers,
)

#: The seconds to wait for the topic's state: the form works without it.
STATUS_WITHIN = 0.5


class HaltSubject(NamedTuple):
    """A topic, or a handler or key of it, as the page names it.

    Attributes:
        scope: the handler or key; `None`: the whole topic.
        key_hidden: whether the user may not see keys of the topic.
    """

    topic: str
    scope: HaltScope | None = None
    key_hidden: bool = False

    @property
    def words(self) -> str:
        """Return words for a heading."""
        if self.scope is None:
            return self.topic
        if self.scope.key is None:
            return f"{self.scope.handler} on {self.topic}"
        key = "One key" if self.key_hidden else f"Key {self.scope.written_key}"
        return f"{key} of {self.scope.handler} on {self.topic}"

    @property
    def audit_words(self) -> str:
        """Return words for the audit log."""
        return self.topic if self.scope is None else describe_halt_subject(self.scope)

    @property
    def query(self) -> str:
        """Return the query of its addresses."""
        if self.scope is None:
            return ""
        key = self.scope.written_key
        return f"?{urlencode({'handler': self.scope.handler, **({} if key is None else {'key': key})})}"

    @property
    def arguments(self) -> str:
        """Return the arguments of the commands."""
        if self.scope is None:
            return self.topic
        return (self.scope._replace(key=None) if self.key_hidden else self.scope).arguments


def show_halt_form(request: Request) -> Response:
    """Show the state, and the form for the action in the address, never for the opposite one."""
    halt = _read_halt(request, subject := _read_subject(request))
    return _render_halt_form(request, 200, subject, halt, typed=console.get_typed_values(request).get("why", ""))


def halt_topic(request: Request) -> Response:
    """Halt a topic, a handler or a key: nothing of it runs from now on."""
    said, desk = require_why(request), console.get_console(request).desk

    def act(subject: HaltSubject, by: str) -> dict[str, Any]:
        if subject.scope is None:
            made = commands.halt_topics(desk.app, desk.settings, desk.routes, [subject.topic], said, by)
            return dict(made["topics"][subject.topic])
        return dict(halt_handlers(desk.app, desk.settings, desk.routes, [subject.scope], said, by)["handlers"][0])

    return _decide_halt(request, "halted", said, act)


def resume_topic(request: Request) -> Response:
    """Resume a topic, a handler or a key from exactly where it stopped."""
    said, desk = require_why(request), console.get_console(request).desk

    def act(subject: HaltSubject, by: str) -> dict[str, Any]:
        if subject.scope is None:
            made = commands.resume_topics(desk.app, desk.settings, desk.routes, [subject.topic], said, by)
            return dict(made["topics"][subject.topic])
        return dict(resume_handlers(desk.app, desk.settings, desk.routes, [subject.scope], said, by)["handlers"][0])

    return _decide_halt(request, "resumed", said, act)


def _read_subject(request: Request) -> HaltSubject:
    """Return the subject of the address or of the sent form."""
    topic, named = request.path_params["topic"], getattr(request.state, "form", None) or request.query_params
    handler, key = str(named.get("handler", "")), named.get("key")
    hidden = not console.get_masks(request).searches_keys([topic])
    if not handler:
        return HaltSubject(topic, None, hidden)
    # The empty field of the form stands for every key: the empty key is written `text:`.
    return HaltSubject(topic, read_scope(topic, handler, str(key) if key else None), hidden)


def _read_halt(request: Request, subject: HaltSubject) -> dict[str, Any] | None:
    """Return the halt of a topic, a handler or a key; `None` if it is not halted."""
    settings, scope = console.get_console(request).desk.settings, subject.scope
    if scope is None:
        return commands.read_halts(settings).get(subject.topic)
    found = handler_halt.read_handler_halts(settings, subject.topic)
    return next((each for each in found if is_halt_of(each, scope)), None)


def _decide_halt(request: Request, what: str, why: str, act: Callable[[HaltSubject, str], dict[str, Any]]) -> Response:
    """Halt or resume, unless the state has changed since the user saw it."""
    subject, form = _read_subject(request), request.state.form
    stands = _read_halt(request, subject)
    if form.get("seen", "") != _build_halt_version(stands):
        if _is_own_decision(request, subject, stands):
            return _answer_decided(request, subject, None, why)
        # The reason is asked again: the typed one does not answer another user's decision.
        return _render_halt_form(request, 409, subject, stands, unsent=form.get("why", ""))
    found = act(subject, console.get_principal(request).name)
    if found.get("changed", True):
        note_decided(request, "halt" if found["halted"] else "resume", f"{what} {subject.audit_words}: {why}")
    if told := list_durability_warnings(found):
        halt = found if found["halted"] else None
        return _render_halt_form(request, 200, subject, halt, typed=form.get("why", ""), told=told)
    return _answer_decided(request, subject, stands, why)


def _is_own_decision(request: Request, subject: HaltSubject, stands: Mapping[str, Any] | None) -> bool:
    """Return whether it is already in the wanted state by the same user: the form was sent twice."""
    who, said = console.get_principal(request).name, require_why(request)
    if _is_halt_form(request):
        return stands is not None and (stands["by"], stands["why"]) == (who, said)
    last, done = _find_resumption(request, subject), f"resumed {subject.audit_words}: {said}"
    return stands is None and last is not None and (last.by, last.said) == (who, done)


def _find_resumption(request: Request, subject: HaltSubject) -> AuditEntry | None:
    """Return the last resumption by a console, among the latest entries of the audit log."""
    found = console.get_console(request).desk.trail.page(EntryFilter(what=("resume",))).entries
    return next((each for each in found if each.said.startswith(f"resumed {subject.audit_words}:")), None)


def _answer_decided(request: Request, subject: HaltSubject, before: Mapping[str, Any] | None, why: str) -> Response:
    """Continue at the form of the opposite act, with that act as a button.

    Parameters:
        before: the halt before the decision.
    """
    now, fields = _read_halt(request, subject), _build_fields(subject)
    if now is None:
        former = why if before is None else str(_redact(before)["why"])
        undo = UndoForm("Halt it again", _build_path(subject, "halt"), {**fields, "seen": "", "why": take_back(former)})
        return answer_done(request, _build_address(subject, "halt"), f"Resumed {subject.words}.", undo)
    back = {**fields, "seen": _build_halt_version(now), "why": take_back(why)}
    undo = UndoForm("Resume", _build_path(subject, "resume"), back)
    return answer_done(request, _build_address(subject, "resume"), f"Halted {subject.words}.", undo)


def _build_fields(subject: HaltSubject) -> dict[str, str]:
    """Return the fields of a form that name its subject."""
    if subject.scope is None:
        return {}
    key = subject.scope.written_key
    return {"handler": subject.scope.handler, **({} if key is None else {"key": key})}


def _build_address(subject: HaltSubject, action: str) -> str:
    return f"{_build_path(subject, action)}{subject.query}"


def _build_path(subject: HaltSubject, action: str) -> str:
    return f"/topics/{quote(subject.topic, safe='')}/{action}"


def _is_halt_form(request: Request) -> bool:
    """Return whether this address halts the topic; else it resumes it."""
    return request.url.path.endswith("/halt")


def _render_halt_form(
    request: Request,
    status: int,
    subject: HaltSubject,
    halt: Mapping[str, Any] | None,
    typed: str = "",
    told: Sequence[str] = (),
    unsent: str = "",
) -> Response:
    asked, topic = console.get_console(request), subject.topic
    handlers = sorted(handler.name for handler in asked.desk.routes.of(topic))
    if halt is None and topic not in asked.desk.routes.topics:
        raise UnknownTopic(f"No handler here names the topic {topic!r}, and it is not halted.")
    if halt is None and subject.scope is not None and subject.scope.handler not in handlers:
        raise UnknownHandler(f"{subject.scope.handler!r} is no handler of {topic!r}, and it is not halted.")
    standing = asked.status_cache.read(STATUS_WITHIN)
    listed = [] if standing is None else status_rows.build_topic_rows(asked.desk.routes, standing.status, None)
    small = [] if standing is None else list_handler_halts(standing.status, topic, hidden=subject.key_hidden)
    return asked.page(
        request,
        "halt.html",
        status,
        topic=topic,
        subject=subject,
        small=small,
        handlers=handlers,
        halt=_redact(halt) if halt is not None and console.get_masks(request).find_fields(topic) else halt,
        halts=_is_halt_form(request),
        seen=_build_halt_version(halt),
        unsent=unsent,
        typed=typed,
        quicker=status == 409,
        resumed=_find_resumption(request, subject) if status == 409 and halt is None else None,
        told=told,
        silent={} if standing is None else standing.silent,
        row=next((row for row in listed if row.name == topic), None),
    )


class HandlerHaltRow(NamedTuple):
    """A halted handler or key of a topic, as a page lists it.

    Attributes:
        key: as text; `None`: the whole handler.
        waiting: deliveries that wait for it in the broker.
        address: of the form that resumes it; empty if the user may not see the key.
    """

    handler: str
    key: str | None
    why: str
    by: str
    since: str
    waiting: int
    address: str


def list_handler_halts(status: Mapping[str, Any], topic: str, *, hidden: bool) -> list[HandlerHaltRow]:
    """Return the halted handlers and keys of a topic, from `bridge status --json` (pure).

    Parameters:
        hidden: whether the user may not see keys.
    """
    rows = []
    for each in status.get("halted_handlers", ()):
        if each["topic"] != topic:
            continue
        is_hidden = each["key"] is not None and (hidden or each["key"] == REDACTED)
        subject = HaltSubject(topic, read_scope(topic, each["handler"], None if is_hidden else each["key"]))
        rows.append(
            HandlerHaltRow(
                each["handler"],
                REDACTED if is_hidden else each["key"],
                each["why"],
                each["by"],
                each["since"],
                each["waiting_deliveries"],
                "" if is_hidden else _build_address(subject, "resume"),
            )
        )
    return rows


def _build_halt_version(halt: Mapping[str, Any] | None) -> str:
    """Return a version that tells a halt from another of the same topic, without the handler's own words."""
    return "" if halt is None else f"{halt['since']} {halt['by']} {_redact(halt)['why']}"


def _redact(halt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the halt of a topic without its handler's words; the halt of a handler or key is a person's."""
    return dict(halt) if "key" in halt else redact_halt(halt)
