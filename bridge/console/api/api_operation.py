"""Every operation of the API with its role and shapes: the API answers and describes itself by this table."""

from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.console.api import (
    groups_api,
    halt_policy_api,
    inspection_api,
    letters_api,
    plans_api,
)
from bridge.console.api.api_request import ApiAnswer, ApiRequest
from bridge.console.api.schemas import common_schema, groups_schema, inspection_schema, letters_schema, plans_schema
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.audit_table import AuditEntry


class Effect(NamedTuple):
    """The behaviour of an operation that acts; it requires an idempotency key.

    Attributes:
        again: makes the answer if a process has done it and died before answering; `None`: it is idempotent and may be
            done again.
        seen: whether `If-Match` has the version that is decided on: "", "may" or "must".
    """

    again: Callable[[ApiRequest, AuditEntry], ApiAnswer] | None = None
    seen: str = ""


class Operation(NamedTuple):
    """An operation of the API.

    Attributes:
        path: the path after `/api/v1`.
        name: the operationId, by which generated clients call it.
        answer: runs in a thread; it may wait for the database and for the server that `waits` names.
        gives: the schema of the answer; `None`: bytes, of the type in `media`.
        takes: the schema of the body; `None`: no body.
    """

    method: str
    path: str
    role: Role
    name: str
    summary: str
    answer: Callable[[ApiRequest], ApiAnswer]
    gives: type[common_schema.ResponseModel] | None
    query: type[common_schema.RequestModel] = common_schema.NoParameters
    takes: type[common_schema.RequestModel] | None = None
    status: int = 200
    act: Effect | None = None
    media: str = "application/octet-stream"
    waits: WaitKind = WaitKind.DATABASE


#: The media type of JSON lines.
NDJSON: Final = "application/x-ndjson"
_VIEWER, _OPERATOR = Role.VIEWER, Role.OPERATOR
_STANDING, _SERVERS = WaitKind.STANDING, WaitKind.SERVERS

OPERATIONS: Final = (
    Operation(
        "GET", "/letters", _VIEWER, "listLetters", "Letters of a filter, newest first.",
        letters_api.list_letters, letters_schema.Page, letters_schema.LettersQuery,
    ),
    Operation(
        "GET", "/letters/count", _VIEWER, "countLetters", "How many letters a filter means.",
        letters_api.count_letters, letters_schema.Counted, letters_schema.Filter,
    ),
    Operation(
        "GET", "/letters/export", _VIEWER, "exportLetters",
        "Letters as lines of JSON, oldest first, as `bridge deadletters import` reads them; not those that are masked.",
        letters_api.export_letters, None, letters_schema.Filter, media=NDJSON,
    ),
    Operation(
        "POST", "/letters/check", _OPERATOR, "checkLetters",
        "Which of at most 10,000 letters their handlers would take now, as they are or after their `upgrade`.",
        letters_api.check_letters, plans_schema.Checked, takes=plans_schema.Checking,
    ),
    Operation(
        "GET", "/letters/{id:int}", _VIEWER, "getLetter", "A letter, with all that is known of it.",
        letters_api.show_letter, letters_schema.Letter,
    ),
    Operation(
        "GET", "/letters/{id:int}/value", _VIEWER, "getValue", "A letter's value, byte for byte.",
        letters_api.send_value, None, letters_schema.ValueQuery, waits=_SERVERS,
    ),
    Operation(
        "GET", "/letters/{id:int}/elsewhere", _VIEWER, "getElsewhere",
        "What became of the same message for each handler; Kafka and the ledger are asked.",
        letters_api.show_sibling_deliveries, letters_schema.Elsewhere, waits=_SERVERS,
    ),
    Operation(
        "POST", "/letters/{id:int}/check", _OPERATOR, "checkValue", "What a letter's handler says of another value.",
        letters_api.check_value, letters_schema.Verdict, takes=letters_schema.Check,
    ),
    Operation(
        "POST", "/letters/{id:int}/edit", _OPERATOR, "editLetter",
        "Make a plan that sends a letter back with another value; nothing is sent before the plan is applied.",
        letters_api.plan_edit, plans_schema.OnePlan, takes=letters_schema.Editing, status=201,
        act=Effect(letters_api.repeat_edit),
    ),
    Operation(
        "POST", "/letters/{id:int}/notes", _OPERATOR, "noteOnLetter", "Note something on a letter.",
        letters_api.note_on_letter, letters_schema.Notes, takes=letters_schema.Noting,
        act=Effect(letters_api.repeat_note),
    ),
    Operation(
        "POST", "/letters/{id:int}/reopen", _OPERATOR, "reopenLetter",
        "Open a letter whose replay has an unknown end, since it did not run.",
        letters_api.reopen, letters_schema.Letter, takes=inspection_schema.Deciding, act=Effect(letters_api.ended),
    ),
    Operation(
        "POST", "/letters/{id:int}/resolve", _OPERATOR, "resolveLetter",
        "Resolve a letter whose replay has an unknown end, since it ran.",
        letters_api.resolve, letters_schema.Letter, takes=inspection_schema.Deciding, act=Effect(letters_api.ended),
    ),
    Operation(
        "GET", "/groups", _VIEWER, "listGroups", "Groups that have letters of a filter.",
        groups_api.list_groups, groups_schema.Groups, groups_schema.GroupsQuery, waits=_STANDING,
    ),
    Operation(
        "GET", "/groups/{id:int}", _VIEWER, "getGroup", "A group, and what to do with it next.",
        groups_api.show_group, groups_schema.OneGroup, waits=_STANDING,
    ),
    Operation(
        "POST", "/groups/{id:int}/fixed", _OPERATOR, "markFixed",
        "Mark a group, or a cause of it, as fixed in a version: its letters go back once all workers have that.",
        groups_api.mark_fixed, groups_schema.OneGroup, takes=groups_schema.Fixing,
        act=Effect(groups_api.repeat_mark, "must"), waits=_STANDING,
    ),
    Operation(
        "POST", "/groups/{id:int}/not-fixed", _OPERATOR, "unmarkFixed", "Take that back.",
        groups_api.unmark_fixed, groups_schema.OneGroup, groups_schema.WhichCause,
        act=Effect(groups_api.repeat_mark, "must"), waits=_STANDING,
    ),
    Operation(
        "POST", "/groups/{id:int}/notes", _OPERATOR, "noteOnGroup", "Note something on a group.",
        groups_api.note_on_group, letters_schema.Notes, takes=letters_schema.Noting,
        act=Effect(groups_api.repeat_note),
    ),
    Operation(
        "GET", "/plans", _VIEWER, "listPlans", "Plans, the newest first.",
        plans_api.list_plans, plans_schema.Plans, common_schema.PageQuery,
    ),
    Operation(
        "POST", "/plans", _OPERATOR, "makePlan",
        "Freeze which letters are to be replayed, discarded or archived, and preview it; nothing is done yet.",
        plans_api.make_plan, plans_schema.OnePlan, takes=plans_schema.Making, status=201,
        act=Effect(plans_api.repeat_plan), waits=_SERVERS,
    ),
    Operation(
        "POST", "/plans/patch", _OPERATOR, "planPatch",
        "Freeze what a JSON Patch makes of at most 20,000 open letters, which go back with that if their handlers "
        "take it; nothing is sent yet.",
        plans_api.patch_letters, plans_schema.OnePlan, takes=plans_schema.Patching, status=201,
        act=Effect(plans_api.repeat_patch),
    ),
    Operation(
        "POST", "/plans/copy", _OPERATOR, "planCopy",
        "Freeze which letters are copied to another topic, which changes nothing for them here; nothing is sent yet.",
        plans_api.copy_letters, plans_schema.OnePlan, takes=plans_schema.Copying, status=201,
        act=Effect(plans_api.repeat_copy), waits=_SERVERS,
    ),
    Operation(
        "POST", "/plans/redrive", _OPERATOR, "planRedrive",
        "Freeze what needs to be sent again of at most 300,000 deliveries of a source topic; nothing is sent yet.",
        plans_api.redrive_range, plans_schema.OnePlan, takes=plans_schema.Redriving, status=201,
        act=Effect(plans_api.repeat_redrive),
        waits=_SERVERS,
    ),
    Operation(
        "GET", "/plans/{id:int}/differences", _VIEWER, "listDifferences", "How a plan changes its letters' values.",
        plans_api.list_differences, plans_schema.Differences, plans_schema.DifferencesQuery,
    ),
    Operation(
        "GET", "/plans/{id:int}", _VIEWER, "getPlan", "A plan: its preview, or how far it is.",
        plans_api.show_plan, plans_schema.OnePlan,
    ),
    Operation(
        "GET", "/plans/{id:int}/outcomes", _VIEWER, "listOutcomes", "How far a plan is with each of its deliveries.",
        plans_api.list_outcomes, plans_schema.Outcomes, plans_schema.OutcomesQuery,
    ),
    Operation(
        "POST", "/plans/{id:int}/apply", _OPERATOR, "applyPlan",
        "Have a plan done by `bridge deadletters record`, or gone on with. Above 1,000 letters, a discard takes an "
        "admin; it begins after 10 seconds.",
        plans_api.apply_plan, plans_schema.OnePlan, takes=plans_schema.Applying,
        act=Effect(plans_api.repeat_decision, "must"),
    ),
    Operation(
        "POST", "/plans/{id:int}/stop", _OPERATOR, "stopPlan", "Stop a plan: what it had not come to stays as it is.",
        plans_api.stop_plan, plans_schema.OnePlan, takes=plans_schema.Stopping,
        act=Effect(plans_api.repeat_decision, "may"),
    ),
    Operation(
        "GET", "/status", _VIEWER, "getStatus", "What the group consumes and how far, and what needs a person.",
        inspection_api.show_status, inspection_schema.Status, waits=_STANDING,
    ),
    Operation(
        "GET", "/stats", _VIEWER, "getStats", "All letters in figures.",
        inspection_api.show_stats, inspection_schema.Stats,
    ),
    Operation(
        "GET", "/find", _VIEWER, "find", "Where a record is now.",
        inspection_api.find_record, inspection_schema.Found, inspection_schema.FindQuery, waits=_SERVERS,
    ),
    Operation(
        "GET", "/audit", _VIEWER, "listAudits", "The last count of each topic, since this console began.",
        inspection_api.list_audits, inspection_schema.Audits,
    ),
    Operation(
        "POST", "/audit/{topic}", _VIEWER, "audit", "Count the fates of every offset of a topic now; it takes seconds.",
        inspection_api.count_topic, inspection_schema.Audit, waits=_SERVERS,
    ),
    Operation(
        "GET", "/trail", _VIEWER, "listTrail", "Who did what, newest first.",
        inspection_api.list_audit_log, inspection_schema.Trail, inspection_schema.TrailQuery,
    ),
    Operation(
        "GET", "/trail/export", _VIEWER, "exportTrail", "Who did what, all of it, as lines of JSON, newest first.",
        letters_api.export_audit_log, None, inspection_schema.TrailExport, media=NDJSON,
    ),
    Operation(
        "GET", "/halts", _VIEWER, "listHalts", "The topics that are halted, and why.",
        halt_policy_api.list_halts, inspection_schema.Halts, waits=_SERVERS,
    ),
    Operation(
        "POST", "/topics/{topic}/halt", _OPERATOR, "haltTopic",
        "Halt a topic: nothing of it is read or run until somebody resumes it.",
        halt_policy_api.halt_topic, inspection_schema.Halted, takes=inspection_schema.Deciding,
        act=Effect(), waits=_SERVERS,
    ),
    Operation(
        "POST", "/topics/{topic}/resume", _OPERATOR, "resumeTopic", "Let a topic go on, from exactly where it stood.",
        halt_policy_api.resume_topic, inspection_schema.Halted, takes=inspection_schema.Deciding,
        act=Effect(), waits=_SERVERS,
    ),
    Operation(
        "GET", "/policies", _VIEWER, "listPolicies", "Each handler's policy, and what was changed of it.",
        halt_policy_api.list_policies, inspection_schema.Policies, waits=_SERVERS,
    ),
    Operation(
        "GET", "/policies/{name}", _VIEWER, "getPolicy", "A handler's policy, and what was changed of it.",
        halt_policy_api.show_policy, inspection_schema.Policy, waits=_SERVERS,
    ),
    Operation(
        "POST", "/policies/{name}", _OPERATOR, "changePolicy", "Change options of a handler's policy, for all workers.",
        halt_policy_api.change_policy, inspection_schema.Policy, takes=inspection_schema.Changing,
        act=Effect(), waits=_SERVERS,
    ),
    Operation(
        "POST", "/policies/{name}/simulate", _OPERATOR, "simulatePolicy",
        "Try a policy on a handler's dead letters; nothing is changed.",
        halt_policy_api.simulate_policy, inspection_schema.Simulation, takes=inspection_schema.Trying, waits=_SERVERS,
    ),
)  # fmt: skip
