"""Every code block of the README is known to a test, and runs as far as it can without a worker and a bridge."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bridge.console.auth.passwords import hash_password
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.embedded import EmbeddedKafka
from tasks.testing import outcome
from tests.doc_blocks import ROOT, find_block, parse_bridge, read_blocks

README: Final = (ROOT / "README.md").read_text()
BLOCKS: Final = read_blocks(ROOT / "README.md")
#: Words of each block, in its order, and the tests that run it.
KNOWN: Final = {
    "# shop/handlers.py": "here; tests/acceptance/test_readme.py",
    "make demo": "tests/acceptance/test_demo.py",
    "54 done, 10 dead": "tests/acceptance/test_demo.py",
    "docker compose": "here; tests/compose/test_compose.py starts the stack",
    "pip install": "here; the image of tests/compose/test_compose.py has the project and the locked packages of `all`",
    "imports = ": "here; tests/acceptance/test_readme.py",
    "celery -A tasks worker": "here; tests/acceptance/test_readme.py",
    "python -m bridge": "tests/acceptance/test_readme.py",
    "on_delivery=report": "here; tests/acceptance/test_readme.py",
    "bridge find": "here; tests/acceptance/test_readme.py",
    "bridge deadletters record": "here; tests/acceptance/test_readme.py",
    "to be replayed with the new value": "tests/acceptance/test_readme.py",
    "# mysite/celery.py": "here",
}


def block(words: str) -> str:
    """Return the text of the one block that has these words."""
    return find_block(BLOCKS, words).text


def test_every_block_is_known_to_a_test():
    assert len(BLOCKS) == len(KNOWN)
    assert [words for words, block in zip(KNOWN, BLOCKS, strict=True) if words not in block.text] == []


def test_the_handler_of_the_example_handles_the_record_of_the_example(capsys):
    code: dict[str, Any] = {"__name__": "readme_example.handlers"}
    exec(block("# shop/handlers.py"), code)
    (value,) = re.findall(r'b"(\{.*?\})"', block("on_delivery=report"))
    order = json.loads(value.replace("\\", ""))
    assert str(outcome(code["charge"], order)) == "done"
    assert "charged 5 to 4242" in capsys.readouterr().out
    assert "charged 5 to 4242" in README
    assert str(outcome(code["charge"], {**order, "amount": 0})) == "dead: permanent"
    (patch,) = re.findall(r"--patch '(.+)'", block("bridge deadletters record"))
    mended = ValuePatch.read(patch).applied(json.dumps({**order, "amount": 0}).encode())
    assert str(outcome(code["charge"], json.loads(mended))) == "done"


def test_the_configuration_names_the_module_of_the_example():
    code: dict[str, Any] = {}
    exec(block("imports = "), code)
    assert code["imports"] == ("shop.handlers",)


def test_the_script_produces_its_record_on_the_embedded_kafka():
    with EmbeddedKafka() as kafka:
        script = block("on_delivery=report").replace("localhost:9092", kafka.bootstrap_servers)
        script = script.replace("python -c", f"{shlex.quote(sys.executable)} -c")
        done = subprocess.run(script, shell=True, capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"orders-\d-0\n", done.stdout), done


def test_every_command_of_the_bridge_exists_with_its_options():
    lines = [line for block in BLOCKS for line in block.text.splitlines()]
    commands = [match[1] for line in lines if (match := re.match(r"(?:docker compose exec \w+ )?bridge (.+)", line))]
    assert len(commands) >= 7
    for words in commands:
        parse_bridge(shlex.split(words))


def test_every_service_and_variable_of_the_compose_block_is_in_the_file():
    compose = (ROOT / "docker-compose.yml").read_text()
    text = block("docker compose")
    for service in re.findall(r"docker compose exec (\w+)", text):
        assert re.search(rf"^  {service}:$", compose, re.MULTILINE)
    assert [name for name in re.findall(r"\b([A-Z_]+)=", text) if f"${{{name}:" not in compose] == []


def test_the_servers_of_the_stack_are_where_the_own_handler_looks_for_them():
    compose = (ROOT / "docker-compose.yml").read_text()
    export = block("celery -A tasks worker")
    for name, port in {"KAFKA": 9092, "REDIS": 6379}.items():
        assert f"localhost:{port}" in export
        assert re.search(
            rf'"(127\.0\.0\.1|\$\{{PUBLISH_ON:-127\.0\.0\.1\}}):\$\{{{name}_HOST_PORT:-{port}\}}:', compose
        )
    assert "version:" not in compose, "Compose calls it obsolete"


def test_the_compose_block_makes_passwords_of_its_own_once_as_the_file_says_too(tmp_path: Path):
    makes, _, _ = block("docker compose").partition("docker compose")
    head = re.findall("^#   (.*\n)", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
    assert "".join(head).startswith(makes)
    made: list[dict[str, str]] = []
    for folder in ("one", "one", "two"):
        (tmp_path / folder).mkdir(exist_ok=True)
        subprocess.run(["sh", "-ec", makes], cwd=tmp_path / folder, check=True, timeout=60)
        lines = (tmp_path / folder / ".env").read_text().splitlines()
        made.append({name: value for name, _, value in (line.partition("=") for line in lines)})
    first, again, other = made
    assert first == again
    assert first.keys() == {"FLOWER_BASIC_AUTH", "CONSOLE_PASSWORD", "POSTGRES_PASSWORD"}
    assert re.fullmatch(r"\w+:\w{32}", first["FLOWER_BASIC_AUTH"])
    hash_password("admin", first["CONSOLE_PASSWORD"])
    assert re.fullmatch(r"\w{32}", first["POSTGRES_PASSWORD"]), "it is a part of a URL"
    assert not set(first.values()) & set(other.values())


def test_the_extra_of_the_installation_exists():
    assert re.fullmatch(r"pip install '\.\[all\]'\n", block("pip install"))
    assert re.search(r"^all = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_an_own_app_is_one_line(tmp_path: Path):
    script = (
        block("# mysite/celery.py")
        + "\nfrom tasks.declaration.app_setup import handler_app as current\nassert current() is app\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_no_password_of_the_compose_file_has_a_default():
    assert re.findall(r"\$\{\w*(?:PASSWORD|AUTH):-[^}$]", (ROOT / "docker-compose.yml").read_text()) == []
