"""The project says which celeryconfig it reads, and refuses a folder whose packages hide its own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import AppNotFound
from bridge.inspection.setup_check import explain_unreachable_kafka
from bridge.settings import app_discovery
from bridge.settings.setting_defaults import OWN_APP


def app(main: str = OWN_APP) -> Any:
    return SimpleNamespace(main=main)


def test_the_file_that_the_settings_come_from_is_known():
    assert app_discovery.find_config_file(app(), {}) == str(Path(__file__).parents[2] / "celeryconfig.py")
    assert app_discovery.find_config_file(app(), {"CELERY_CONFIG_MODULE": "tests.handlers.chosen"}).endswith(
        "handlers/chosen.py"
    )
    assert app_discovery.find_config_file(app("mysite"), {}) == ""
    assert app_discovery.find_config_file(app(), {"CELERY_CONFIG_MODULE": "not.there"}) == ""


def test_a_celeryconfig_of_another_folder_is_a_warning_unless_it_was_named(tmp_path, monkeypatch):
    theirs = tmp_path / "theirs" / "celeryconfig.py"
    (ours := tmp_path / "ours").mkdir()
    monkeypatch.chdir(ours)
    assert f"celeryconfig is read from {theirs}" in app_discovery.warn_of_foreign_config(str(theirs), {})
    assert app_discovery.warn_of_foreign_config(str(theirs), {"CELERY_CONFIG_MODULE": "celeryconfig"}) == ""
    assert app_discovery.warn_of_foreign_config(str(ours / "celeryconfig.py"), {}) == ""
    assert app_discovery.warn_of_foreign_config("", {}) == ""


@pytest.mark.parametrize("package", ["bridge", "lossless"])
def test_a_package_of_the_users_that_hides_ours_is_refused_by_name(tmp_path, monkeypatch, package):
    (tmp_path / package).mkdir()
    monkeypatch.chdir(tmp_path)
    # Without __init__.py it hides nothing.
    app_discovery.find_celery_app("tasks")
    (tmp_path / package / "__init__.py").touch()
    with pytest.raises(AppNotFound, match=f"hides this project's package `{package}`.*rename it"):
        app_discovery.find_celery_app("tasks")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([], "Check KAFKA_BOOTSTRAP_SERVERS"),
        (["localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"], "KAFKA_BOOTSTRAP_SERVERS"),
        (["SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?"], "KAFKA_SECURITY_PROTOCOL"),
        (["might be caused by incorrect security.protocol configuration"], "KAFKA_SECURITY_PROTOCOL"),
        (["SASL authentication error: Authentication failed"], "KAFKA_SASL_"),
    ],
)
def test_a_kafka_that_refuses_the_login_points_at_the_variables_of_the_login(said, wanted):
    assert wanted in explain_unreachable_kafka("localhost:9092", "Local: Broker transport failure", said)
