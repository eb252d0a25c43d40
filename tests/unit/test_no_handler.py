"""Where no handler is found, it is said what to do; and where no celeryconfig is, in which folder it was looked for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.settings import app_discovery
from bridge.settings.setting_defaults import OWN_APP


def app(main: str = OWN_APP) -> Any:
    return SimpleNamespace(main=main, conf=SimpleNamespace(imports=()), tasks={})


def test_in_a_folder_without_a_celeryconfig_that_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app_discovery, "find_spec", lambda name: None)
    assert (
        f"no celeryconfig.py is in {tmp_path}: start in the folder that has yours"
        in app_discovery.explain_no_handler(app(), {})
    )


def test_who_has_one_or_an_app_of_their_own_is_not_told_to_look_for_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app_discovery, "find_spec", lambda name: None)
    assert "celeryconfig" not in app_discovery.explain_no_handler(app("mysite"), {})
    assert "celeryconfig" not in app_discovery.explain_no_handler(app(), {"CELERY_CONFIG_MODULE": "shop.settings"})
    monkeypatch.setattr(app_discovery, "find_spec", lambda name: object())
    assert "celeryconfig" not in app_discovery.explain_no_handler(app(), {})
