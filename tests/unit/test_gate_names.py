"""A message names the gates that it must pass: its topic's, and those of what its handler needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.gate_names import gated_dependency, gates_for, needs_gate, topic_gate


def test_a_message_passes_the_gate_of_its_topic_and_of_each_thing_that_its_handler_needs():
    assert gates_for("shop", "orders") == "shop:topic:orders"
    assert gates_for("shop", "orders", ("bank", "mail")) == "shop:topic:orders shop:needs:bank shop:needs:mail"


def test_what_has_failed_waits_at_another_gate_of_what_it_needs():
    assert gates_for("shop", "orders", ("bank",), again=True) == "shop:topic:orders shop:again:bank"
    assert [gated_dependency("shop", f"shop:{kind}:the%20bank") for kind in ("needs", "again")] == ["the bank"] * 2
    assert gated_dependency("shop", "shop:topic:bank") is None
    assert gated_dependency("other", "shop:needs:bank") is None


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_whatever_a_group_is_called_no_two_gates_share_a_name(group: str, topic: str, other: str, another: str):
    try:
        names = gates_for(group, topic, (another,)).split(" ")
    except UnicodeEncodeError:
        return  # a lone surrogate is no name of anything
    assert names == [topic_gate(group, topic), needs_gate(group, another)]
    assert (topic_gate(group, topic) == topic_gate(other, another)) == ((group, topic) == (other, another))


@pytest.mark.parametrize(("group", "named"), [("my group", "my%20group"), ('a"b:c', "a%22b%3Ac"), ("ü", "%C3%BC")])
def test_what_is_no_name_of_a_gate_is_written_otherwise(group: str, named: str):
    assert topic_gate(group, "orders") == f"{named}:topic:orders"
