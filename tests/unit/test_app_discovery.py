"""Importing the modules of handlers: what is wrong is said with file and line."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

import tasks
from bridge.errors import AppNotFound
from bridge.settings.app_discovery import explain_no_handler, find_celery_app, import_handlers


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """An app whose modules of handlers lie in `tmp_path`."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    app = Celery("handlers", set_as_current=False)
    yield app
    app.close()
    for name in set(sys.modules) - known:
        del sys.modules[name]


BROKEN = {
    "name": ("import json\n\nnot_there\n", "NameError: name 'not_there' is not defined", 3),
    "syntax": ("import json\ndef f(:\n", "SyntaxError: ", 2),
    "library": ("import json\n\n\njson.loads('{')\n", "JSONDecodeError: ", 4),
    "option": ("from tasks import handler\n\n@handler('o', batch=0)\ndef f(o): ...\n", "HandlerError: ", 3),
    "exit": ("import sys\n\nsys.exit(0)\n", "SystemExit: 0", 3),
    "missing": ("import nowhere_at_all\n", "ModuleNotFoundError: No module named", 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_cannot_be_imported_is_named_with_the_line_of_the_users_own_code(
    app: Celery, tmp_path: Path, name: str
):
    text, error, line = BROKEN[name]
    module = f"broken_{name}"
    (tmp_path / f"{module}.py").write_text(text)
    app.conf.imports = (module,)
    (fault,) = import_handlers(app)
    assert f"the module {module!r} cannot be imported: {error}" in fault
    assert fault.endswith(f"({tmp_path / module}.py, line {line}).")


def test_of_a_module_that_is_not_there_no_line_is_named_but_where_its_name_stands(app: Celery):
    app.conf.imports = ("nowhere.handlers",)
    (fault,) = import_handlers(app)
    assert "ModuleNotFoundError: No module named 'nowhere'. HANDLERS names it, or `imports`" in fault


def test_the_line_is_that_of_the_users_deepest_module(app: Celery, tmp_path: Path):
    (tmp_path / "outer_one.py").write_text("import inner_one\n")
    (tmp_path / "inner_one.py").write_text("\n1 / 0\n")
    app.conf.imports = ("outer_one",)
    (fault,) = import_handlers(app)
    assert "'outer_one'" in fault
    assert f"({tmp_path / 'inner_one.py'}, line 2)" in fault


def test_an_app_without_handlers_is_told_which_modules_hold_none(app: Celery, tmp_path: Path):
    assert "name the modules" in explain_no_handler(app, {})
    (tmp_path / "shop_one").mkdir()
    (tmp_path / "shop_one" / "__init__.py").touch()
    (tmp_path / "shop_one" / "records.py").touch()
    app.conf.imports = ("shop_one", "json")
    assert import_handlers(app) == []
    said = explain_no_handler(app, {"HANDLERS": "shop_one,json"})
    assert "HANDLERS names 'shop_one'" in said
    assert "the package holds shop_one.records: name those" in said
    assert "'json' (" in said
    assert "`imports` names 'shop_one'" in explain_no_handler(app, {})


def test_handlers_that_were_declared_on_another_app_are_named_with_what_to_do():
    @tasks.handler("orders", name="declared.elsewhere")
    def charge(order: object) -> None: ...

    try:
        words = explain_no_handler(Celery("mysite", set_as_current=False), {})
    finally:
        del tasks.app.tasks["declared.elsewhere"]
    assert "declared.elsewhere was declared on the app 'tasks'" in words
    assert "call tasks.use(app) where 'mysite' is made" in words


def test_an_app_that_cannot_be_loaded_is_told_with_the_line_that_is_wrong(app: Celery, tmp_path: Path):
    (tmp_path / "brokenapp.py").write_text("imports = (shop.handlers,)\n")
    with pytest.raises(AppNotFound, match=rf"NameError: .*{tmp_path}/brokenapp\.py, line 1\): fix that"):
        find_celery_app("brokenapp")
    with pytest.raises(AppNotFound, match=r"no module 'nowhere_at_all' in .*path\. Name the app's module"):
        find_celery_app("nowhere_at_all")
    with pytest.raises(AppNotFound, match=r"no module 'tsks' in .*did you mean 'tasks'\?"):
        find_celery_app("tsks.celery:app")


def test_a_package_of_the_users_that_hides_one_of_ours_is_named_and_a_folder_without_init_hides_none(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").mkdir()
    assert find_celery_app("tasks") is tasks.app
    (tmp_path / "tasks" / "__init__.py").touch()
    with pytest.raises(AppNotFound, match=rf"{tmp_path}/tasks/__init__\.py hides this project's package `tasks` "):
        find_celery_app("tasks")
