"""The permissions that the page on Redis's users lists are those that the scripts and the ledger need."""

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from redis.client import Pipeline

from bridge.ledger.ledger_permissions import LEDGER_COMMANDS, find_refused_fates
from tests.project_process import ROOT
from tests.redis_user import read_permissions

#: How redis-py calls what Redis calls otherwise, and calls of a pipeline that are no command.
RENAMED: Final = {"delete": "del", "execute": "", "execute_command": "", "memory_usage": "memory"}
#: What the page names beside its list.
BESIDE: Final = {"waitaof"}


def list_used_commands(files: Iterable[Path]) -> set[str]:
    """Return each command of scripts, and of pipelines in Python."""
    texts = {file: file.read_text() for file in files if file.suffix in (".lua", ".py")}
    scripts = {
        name.lower()
        for file, text in texts.items()
        if file.suffix == ".lua"
        for name in re.findall(r"\bp?call\(['\"]([A-Z]+)['\"]", text)
    }
    ours = {name for text in texts.values() for name in re.findall(r"\bpipe\.([a-z_]+)\(", text)}
    assert {name for name in ours if not hasattr(Pipeline, name)} == set()
    raw = {name.lower() for text in texts.values() for name in re.findall(r"execute_command\(\"([A-Z]+)\"", text)}
    return {RENAMED.get(name, name) for name in scripts | ours | raw} - {""} - BESIDE


def test_the_page_allows_each_command_that_is_used():
    allowed = {rule[1:].partition("|")[0] for rule in read_permissions().split() if rule.startswith("+")}
    files = [file for top in ("bridge", "lossless", "tasks") for file in (ROOT / top).rglob("*.*")]
    assert list_used_commands(files) - allowed == set()


def test_the_check_asks_for_what_the_ledger_uses():
    files = [file for file in (ROOT / "bridge/ledger").rglob("*.*") if file.suffix in (".lua", ".py")]
    keyless = {"info", "time", "eval", "evalsha", "watch", "multi"}
    assert list_used_commands(files) - keyless == {name.lower() for name in LEDGER_COMMANDS}


def test_whom_the_ledgers_redis_refuses_is_sent_to_the_page_that_lists_the_ledgers_commands():
    ledger: Any = SimpleNamespace(run=lambda *_: [0])
    assert "docs/how-to/redis-servers.md lists what is needed" in str(find_refused_fates(ledger))
