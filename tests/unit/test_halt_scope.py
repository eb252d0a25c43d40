"""A halt of a handler or a key has names that no other halt has, whatever the names hold."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.gate_names import gated_dependency, gated_scope, gated_topic, gates_for, held_gate
from bridge.formats.group_decision import append_decision, halt_key, halted_topic, make_decision_entry, policy_handler
from bridge.formats.halt_scope import HaltScope, find_small_halts, halted_scope
from bridge.handler_routes import Handler, Routes
from bridge.operator_actions.handler_halt import add_former_names, make_scopes
from bridge.operator_actions.topic_halt import do_others_run, list_still_halted

names = st.text(min_size=1).map(lambda text: text.encode("utf-8", "replace").decode())
keys = st.binary().map(lambda key: key.decode("utf-8", "surrogateescape"))
scopes = st.builds(HaltScope, names, names, st.none() | keys)


@given(scopes, names)
def test_a_scope_is_read_from_its_decision_and_from_its_gate(scope: HaltScope, group: str):
    assert halted_scope(scope.decision_key) == scope
    gate = held_gate(group, scope)
    assert gated_scope(group, gate) == scope
    assert (gated_topic(group, gate), gated_dependency(group, gate), gated_scope(f"{group}x", gate)) == (None,) * 3
    assert scope.decision_key.isascii()


@given(scopes)
def test_a_bridge_that_knows_only_halts_of_topics_sees_none(scope: HaltScope):
    assert halted_topic(scope.decision_key) is None
    assert policy_handler(scope.decision_key) is None


@pytest.mark.parametrize(
    "key", [halt_key("orders"), "halt-handler:", "halt-handler:orders", "halt-handler:a:b:c:d", "halt-handler:a:%FF"]
)
def test_what_names_no_handler_is_no_small_halt(key: str):
    assert halted_scope(key) is None


def test_a_scope_is_said_as_its_command_takes_it():
    assert HaltScope("orders", "charge").arguments == "orders --handler charge"
    assert HaltScope("orders", "charge", "it's 1").arguments == "orders --handler charge --key 'it'\"'\"'s 1'"
    assert HaltScope("orders", "charge", "").arguments == "orders --handler charge --key text:"
    assert HaltScope("orders", "charge", "4711").words == "handler 'charge' of topic 'orders', key '4711',"


@given(names, names, keys)
def test_the_shown_command_and_the_json_name_the_same_key_whatever_its_bytes(topic: str, handler: str, key: str):
    scope = HaltScope(topic, handler, key)
    *_, option, written = shlex.split(scope.arguments)
    assert (option, written) == ("--key", scope.data["key"])
    assert make_scopes([topic], handler, written) == [scope]
    assert written.isprintable()


@pytest.mark.parametrize(
    ("typed", "key", "written"),
    [
        ("\udcff\x01", b"\xff\x01", "0xff01"),
        ("0x35", b"5", "5"),
        ("base64:NQ==", b"5", "5"),
        ("text:0x35", b"0x35", "text:0x35"),
        ("text:", b"", "text:"),
        ("47 11/ä", "47 11/ä".encode(), "47 11/ä"),
    ],
)
def test_a_key_is_typed_as_for_a_redrive(typed: str, key: bytes, written: str):
    (scope,) = make_scopes(["orders"], "charge", typed)
    assert (scope.key_bytes, scope.written_key) == (key, written)


def test_the_gate_of_a_halt_stands_behind_the_others():
    gate = held_gate("shop", HaltScope("orders", "charge", "4711"))
    assert gates_for("shop", "orders", ("bank",), held=gate) == f"shop:topic:orders shop:needs:bank {gate}"


def test_only_what_is_in_force_is_halted():
    one, two = HaltScope("orders", "charge"), HaltScope("orders", "charge", "4711")
    halted = append_decision(one.decision_key, None, make_decision_entry({}, "ann", 1.0, "x"))
    ended = append_decision(two.decision_key, None, make_decision_entry(None, "ann", 1.0, "x"))
    assert find_small_halts({each.key: each for each in (halted, ended)}) == {one: halted}


ROUTES = Routes(
    {
        name: Handler(name, ("orders",), "q", 1, 0.0, aliases=aliases)
        for name, aliases in (("bill", ("charge",)), ("mail", ()))
    }
)
OLD, NOW, MAIL = (HaltScope("orders", name) for name in ("charge", "bill", "mail"))


@pytest.mark.parametrize(
    ("asked", "halted", "resumed"),
    [
        ([NOW], [], [NOW]),
        ([NOW], [OLD, MAIL], [OLD]),
        ([OLD], [OLD, MAIL], [OLD]),
        ([NOW], [OLD, NOW], [NOW, OLD]),
        ([NOW._replace(key="7")], [OLD, OLD._replace(key="7")], [OLD._replace(key="7")]),
    ],
)
def test_a_renamed_handler_is_resumed_by_both_names(
    asked: list[HaltScope], halted: list[HaltScope], resumed: list[HaltScope]
):
    assert add_former_names(asked, halted, ROUTES.current_names) == resumed


def test_what_stays_halted_is_listed_and_says_whether_anything_else_of_the_topic_runs():
    key = NOW._replace(key="7")
    halts = {
        scope: append_decision(scope.decision_key, None, make_decision_entry({}, "ann", 1.0, "why"))
        for scope in (OLD, key, HaltScope("other", "bill"))
    }
    found = list_still_halted(ROUTES, halts, {"orders"}, ())
    assert [(each["handler"], each["key"], each["halted"], each["changed"]) for each in found] == [
        ("charge", None, True, False),
        ("bill", "7", True, False),
    ]
    assert [each["others_run"] for each in found] == [True, True]
    assert not do_others_run(ROUTES, [OLD, MAIL], (), OLD)
    assert not do_others_run(ROUTES, [key], {"orders"}, key)
