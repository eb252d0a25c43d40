"""A setting that names a user's function: what is wrong with it is said with the setting's name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.settings.imported_function import import_function


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_logins.py").write_text("NUMBER = 7\n\ndef token(config):\n    return config\n")
    (tmp_path / "broken_logins.py").write_text("\n1 / 0\n")
    yield "own_logins"
    for name in ("own_logins", "broken_logins"):
        sys.modules.pop(name, None)


def test_a_setting_names_a_function_by_its_module(module: str):
    assert import_function("KAFKA_OAUTH_CB", f"{module}:token")("c") == "c"
    assert import_function("KAFKA_OAUTH_CB", "collections:OrderedDict.fromkeys")("a") == {"a": None}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_logins.token", "must be module:function, as in shop.logins:token; it is 'own_logins.token'."),
        ("nowhere:token", "No module named 'nowhere'. Correct the name, or start in the folder that has it."),
        ("broken_logins:token", "the module 'broken_logins' cannot be imported: ZeroDivisionError: division by zero ("),
        ("own_logins:tokens", "the module 'own_logins' has no tokens: did you mean token?"),
        ("own_logins:NUMBER", "own_logins:NUMBER is no function, but int."),
    ],
)
def test_a_function_that_cannot_be_imported_is_one_sentence_with_the_setting(module: str, name: str, words: str):
    with pytest.raises(SettingsError) as refused:
        import_function("KAFKA_OAUTH_CB", name)
    (fault,) = refused.value.faults
    assert fault.startswith("KAFKA_OAUTH_CB")
    assert words in fault
