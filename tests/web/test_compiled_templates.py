"""A template is compiled once in a process, however many consoles it has."""

import jinja2
import pytest

from bridge.console.console import Console


def test_a_second_console_compiles_no_template_again_and_links_to_its_own_flower(desk, monkeypatch):
    first = Console(desk, "first")
    first.macros("status-macros.html")

    def refuse(*_: object) -> None:
        pytest.fail("a template is compiled again")

    monkeypatch.setattr(jinja2.Environment, "compile", refuse)
    second = Console(desk, "second")
    assert second.macros("status-macros.html") is not first.macros("status-macros.html")
    assert second.templates.globals["in_flower"] == second.in_flower != first.in_flower
