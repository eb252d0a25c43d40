"""The scope of an account as conditions of SQL: each statement of its connections reads and changes covered rows alone.

A statement is narrowed where it is executed, whichever module wrote it: every SELECT, UPDATE and DELETE gets, for each
table that it reads, the condition of that table. A table without an entry here is refused, so a new one is closed until
somebody decides about it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Alias,
    ColumnElement,
    Connection,
    Delete,
    FromClause,
    Select,
    Table,
    TextClause,
    Update,
    and_,
    bindparam,
    exists,
    false,
    literal,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.expression import CTE, Join, Subquery, TableClause
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import SelectState

from bridge.deadletters.db.table_definitions import items, kinds, letters
from bridge.deadletters.model.letter_scope import WILDCARD, LetterScope
from bridge.errors import OutsideScope

#: The execution options with the scope of a connection, and of a statement that reads all rows.
SCOPE_OPTION: Final = "desk_scope"
ALL_ROWS_OPTION: Final = "desk_all_rows"


class RowScope(NamedTuple):
    """The letters that an account may see, and its name: a plan without letters is shown to its maker alone."""

    letters: LetterScope
    person: str


Condition = ColumnElement[bool]


def narrow_execution(
    connection: Connection, statement: Any, many: Any, parameters: Any, options: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
    """Return a statement as a connection with a scope executes it: a hook of SQLAlchemy (`before_execute`)."""
    if connection.get_execution_options().get(ALL_ROWS_OPTION) or options.get(ALL_ROWS_OPTION):
        return statement, many, parameters
    scope: RowScope = connection.get_execution_options()[SCOPE_OPTION]
    return narrow_statement(statement, scope), many, parameters


def narrow_statement(statement: Any, scope: RowScope) -> Any:
    """Return a statement that reads and changes covered rows alone.

    Raises:
        OutsideScope: it reads a table, or is of a kind, that accounts with a scope have nothing to do with.
    """
    if isinstance(statement, TextClause):
        if not statement.text.startswith(_KNOWN_TEXTS):
            raise OutsideScope(f"{REFUSAL} (statement).")
        return statement
    if (into := getattr(statement, "table", None)) is not None:
        _find_rule(into)
    return visitors.cloned_traverse(
        statement,
        {},
        {
            "select": partial(_narrow_select, scope),
            "update": partial(_narrow_change, scope),
            "delete": partial(_narrow_change, scope),
        },
    )


def find_shared_groups(connection: Connection, group_ids: Sequence[int]) -> list[int]:
    """Return those of these failure groups that have letters outside the scope of a connection."""
    scope: RowScope | None = connection.get_execution_options().get(SCOPE_OPTION)
    if scope is None or not group_ids:
        return []
    its = kinds.c.group_id.in_(bindparam(None, [*group_ids], expanding=True, literal_execute=True))
    others = select(kinds.c.group_id).where(its, not_(_is_covered(kinds, scope))).distinct()
    return [*connection.execute(others.execution_options(**{ALL_ROWS_OPTION: True})).scalars()]


def require_own_group(connection: Connection, group_id: int) -> None:
    """Require that all letters of a failure group are in the scope of a connection.

    Raises:
        OutsideScope: some are not: a note or a mark would be on those too.
    """
    if find_shared_groups(connection, [group_id]):
        raise OutsideScope(
            f"Group {group_id} also has letters outside your topics and consumer groups: an account that sees all of "
            "them writes notes on it and marks it as fixed. Nothing was changed."
        )


#: The beginning of each refusal.
REFUSAL: Final = "Your account sees some topics and consumer groups alone, and this is about all of them"

#: The beginnings of statements that are written as text, and read and change no letter of anybody.
_KNOWN_TEXTS: Final = (
    "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp())",
    "INSERT INTO facts (name, value)",
    "SELECT value FROM facts WHERE name",
    "INSERT INTO tallies (kind_id, status, count) VALUES",
)


def _narrow_select(scope: RowScope, statement: Select[Any]) -> None:
    found = [_build_condition(source, scope, optional) for source, optional in _list_sources(statement)]
    statement._where_criteria = (*statement._where_criteria, *found)


def _narrow_change(scope: RowScope, statement: Update | Delete) -> None:
    table: Any = statement.table
    rule = _find_rule(table)
    statement._where_criteria = (*statement._where_criteria, (rule.changes or rule.reads)(table, scope))


def _list_sources(statement: Select[Any]) -> Iterator[tuple[FromClause, bool]]:
    """Yield the tables that a SELECT reads, and whether an outer join may leave a row of them out."""
    # Without a compiler, which `get_final_froms` runs over the whole statement.
    pending = [(source, False) for source in SelectState(statement, None)._get_display_froms()]  # type: ignore[arg-type]
    while pending:
        source, optional = pending.pop()
        if isinstance(source, Join):
            pending += [(source.left, optional or source.full), (source.right, optional or source.isouter)]
        elif isinstance(source, (Subquery, CTE)):
            # The SELECT within it is narrowed itself.
            continue
        else:
            yield source, optional


def _build_condition(source: FromClause, scope: RowScope, optional: bool) -> Condition:
    condition = _find_rule(source).reads(source, scope)
    key = next(iter(source.primary_key), None)
    return or_(key.is_(None), condition) if optional and key is not None else condition


def _is_covered(source: Any, scope: RowScope) -> Condition:
    """Return the condition that a kind is in a scope."""
    fields = ((source.c.topic, scope.letters.topics), (source.c.consumer_group, scope.letters.consumer_groups))
    return and_(true(), *(or_(*(_matches(column, each) for each in some)) for column, some in fields if some))


def _matches(column: Any, pattern: str) -> Condition:
    if WILDCARD not in pattern:
        return column == pattern  # type: ignore[no-any-return]
    glob = "".join(f"[{each}]" if each in "[?" else each for each in pattern)
    like = "".join("%" if each == WILDCARD else f"\\{each}" if each in "%_\\" else each for each in pattern)
    return NameMatches(column, literal(glob), literal(like))


class NameMatches(FunctionElement[bool]):
    """The SQL condition that a name matches a pattern, with upper and lower case apart."""

    inherit_cache = True


@compiles(NameMatches)
@compiles(NameMatches, "sqlite")
def _match_in_sqlite(element: NameMatches, compiler: Any, **options: Any) -> str:
    column, glob, _ = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} GLOB {glob}"


@compiles(NameMatches, "postgresql")
def _match_in_postgresql(element: NameMatches, compiler: Any, **options: Any) -> str:
    column, _, like = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} LIKE {like}"


def _select_kinds(scope: RowScope, name: str = "id") -> Select[Any]:
    own = kinds.alias()
    return select(own.c[name]).where(_is_covered(own, scope)).correlate(None)


def _has_kind(source: Any, scope: RowScope) -> Condition:
    return source.c.kind_id.in_(_select_kinds(scope))  # type: ignore[no-any-return]


def _has_letter(source: Any, scope: RowScope) -> Condition:
    return _is_own_letter(source, source.c.letter_id, scope)


def _is_own_letter(source: Any, id_: Any, scope: RowScope) -> Condition:
    own = letters.alias()
    return exists(select(own.c.id).where(own.c.id == id_, _has_kind(own, scope)).correlate(source))


def _has_own_kind(source: Any, scope: RowScope) -> Condition:
    return source.c.id.in_(_select_kinds(scope, "group_id"))  # type: ignore[no-any-return]


def _is_own_group(id_: Any, scope: RowScope) -> Condition:
    """Return the condition that all kinds of a group are covered."""
    other = kinds.alias()
    others = select(other.c.group_id).where(not_(_is_covered(other, scope))).correlate(None)
    return and_(id_.in_(_select_kinds(scope, "group_id")), id_.not_in(others))


def _is_own_plan(source: Any, scope: RowScope) -> Condition:
    """Return the condition that all deliveries of a plan are of covered letters, which exist; or it has none."""
    own = or_(exists(_select_items(source, source.c.id)), source.c.by == scope.person)
    return and_(not_(_has_other_items(source, source.c.id, scope)), own)


def _is_own_plan_id(source: Any, id_: Any, scope: RowScope) -> Condition:
    return and_(exists(_select_items(source, id_)), not_(_has_other_items(source, id_, scope)))


def _select_items(source: Any, plan_id: Any) -> Select[Any]:
    some = items.alias()
    return select(some.c.position).where(some.c.plan_id == plan_id).correlate(source)


def _has_other_items(source: Any, plan_id: Any, scope: RowScope) -> Condition:
    """Return the condition that a plan has a delivery that no covered letter stands for: of another, or a redrive."""
    some, own = items.alias(), letters.alias()
    covered = exists(select(own.c.id).where(own.c.id == some.c.letter_id, _has_kind(own, scope)).correlate(some))
    return exists(select(some.c.position).where(some.c.plan_id == plan_id, not_(covered)).correlate(source))


def _is_own_entry(source: Any, scope: RowScope) -> Condition:
    """Return the condition that an audit entry is about covered letters, groups or plans, and about nothing else.

    Entries without a subject are about topics, users or the whole: they are told to accounts without a scope, and to
    whoever did it.
    """
    letter, group, plan = source.c.letter_id, source.c.group_id, source.c.plan_id
    return and_(
        or_(letter.is_not(None), group.is_not(None), plan.is_not(None), source.c.by == scope.person),
        or_(letter.is_(None), _is_own_letter(source, letter, scope)),
        or_(group.is_(None), _is_own_group(group, scope)),
        or_(plan.is_(None), _is_own_plan_id(source, plan, scope)),
    )


class _RowRule(NamedTuple):
    """The condition on the rows of a table that are read; and on those that are changed, if it is another."""

    reads: Callable[[Any, RowScope], Condition]
    changes: Callable[[Any, RowScope], Condition] | None = None


_OPEN: Final = _RowRule(lambda source, scope: true())
_EMPTY: Final = _RowRule(lambda source, scope: false())
#: The rule of each table. Tables of webhooks and alarms are about all letters.
_RULES: Final[Mapping[str, _RowRule]] = {
    "kinds": _RowRule(_is_covered),
    "letters": _RowRule(_has_kind),
    "failures": _RowRule(_has_kind),
    "tallies": _RowRule(_has_kind),
    "hours": _RowRule(_has_kind),
    "groups": _RowRule(_has_own_kind, lambda source, scope: _is_own_group(source.c.id, scope)),
    "cause_fixes": _RowRule(
        lambda source, scope: source.c.group_id.in_(_select_kinds(scope, "group_id")),
        lambda source, scope: _is_own_group(source.c.group_id, scope),
    ),
    "edits": _RowRule(_has_letter),
    "items": _RowRule(_has_letter),
    "plans": _RowRule(_is_own_plan),
    "trail": _RowRule(_is_own_entry),
    # Found by the id in a row above alone.
    "tracebacks": _OPEN,
    "words": _OPEN,
    # Of recorders, which are about all letters.
    "positions": _EMPTY,
    # Of accounts and requests: an account reads and changes its own, by its name or by a secret.
    "facts": _OPEN,
    "requests": _OPEN,
    "users": _OPEN,
    "sessions": _OPEN,
    "issued_sessions": _OPEN,
    "tokens": _OPEN,
    # A view for all users may name topics of others.
    "saved_views": _RowRule(lambda source, scope: source.c.owner == scope.person),
}


def _find_rule(source: Any) -> _RowRule:
    while isinstance(source, Alias):
        source = source.element
    if isinstance(source, (Table, TableClause)) and (rule := _RULES.get(source.name)) is not None:
        return rule
    raise OutsideScope(f"{REFUSAL} ({getattr(source, 'name', type(source).__name__)}).")
