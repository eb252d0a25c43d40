"""How a Lua script is read and composed, and that each is one that somebody calls."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bridge.ledger import ledger_scripts
from lossless import lua
from lossless.transport import transport_scripts


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package's scripts."""
    (tmp_path / "some_package" / "lua").mkdir(parents=True)
    (tmp_path / "some_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_package", raising=False)
    return tmp_path / "some_package" / "lua"


def test_a_script_has_what_it_includes_and_what_python_decides(package: Path) -> None:
    (package / "half.lua").write_text("-- Half of it.\nlocal function half(n) return n / 2 end\n")
    (package / "whole.lua").write_text("-- KEYS: none.\n\n-- @include half\nreturn half(PAGE)\n")
    text = lua.script("some_package", "whole", "local PAGE = 8").text
    assert text.splitlines() == [
        "local PAGE = 8 ",
        "",
        "",
        "local function half(n) return n / 2 end",
        "",
        "return half(PAGE)",
    ]


def test_a_comment_is_sent_to_nobody_and_lines_keep_their_numbers(package: Path) -> None:
    (package / "one.lua").write_text("-- What it does.\n-- And why.\nreturn 'a -- b'  -- said here\n")
    assert lua.script("some_package", "one").text.splitlines() == ["", "", "return 'a -- b'  -- said here"]


def test_a_script_that_is_not_there_is_missed_at_import(package: Path) -> None:
    (package / "one.lua").write_text("-- @include nowhere\n")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.lua"):
        lua.script("some_package", "one")


@pytest.mark.parametrize("module", [transport_scripts, ledger_scripts], ids=lambda module: module.__name__)
def test_every_file_is_called_or_included(module: ModuleType) -> None:
    folder = Path(str(module.__file__)).parent / "lua"
    called = {name.lower() for name, value in vars(module).items() if isinstance(value, lua.Script)}
    included = {name for file in folder.glob("*.lua") for name in lua._INCLUDE.findall(file.read_text())}
    assert {file.stem for file in folder.glob("*.lua")} == called | included
