"""The desk's commands, run as a user runs them."""

import json
from typing import Any

import pytest
from celery import Celery
from typer.testing import CliRunner, Result

from bridge.cli.deadletters import desk_access, service_commands
from bridge.cli.root_command import cli
from bridge.handler_routes import Routes
from bridge.settings import Settings
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings


class Commands:
    """`bridge deadletters …` on one database; for an app without handlers, unless one is given; `said`: settings."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        url: str,
        app: Celery | None = None,
        routes: Routes | None = None,
        **said: Any,
    ) -> None:
        environment = EnvironmentSettings(DEADLETTERS_DATABASE_URL=url, **said)
        settings = Settings(FileSettings(), environment, "memory://", {"bootstrap.servers": "localhost:1"})
        for module in (desk_access, service_commands):
            monkeypatch.setattr(module, "load_app", lambda name, **_: (app, settings, routes or Routes({})))
        monkeypatch.setenv("COLUMNS", "80")

    def run(self, *words: str | int, answer: str | None = None) -> Result:
        """What a command printed, and its code."""
        return CliRunner().invoke(cli, ["deadletters", *map(str, words)], input=answer)

    def given(self, *words: str | int) -> Any:
        """What it gave as JSON; it must have succeeded."""
        ended = self.run(*words, "--json")
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)
