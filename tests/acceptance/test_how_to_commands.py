"""Every command of the how-to pages and of the tutorial on existing apps runs as it stands, and ends with 0.

The tutorials' other commands: test_quickstart.py. The README's: test_readme.py, and tests/compose with Docker.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.acceptance import kcat
from tests.doc_blocks import ROOT, Block, find_block, read_blocks
from tests.page_world import PageWorld, Terminal
from tests.servers import kafka as kafka_server
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need
from tests.servers.redis import RedisServer

SHELL: Final = ("console", "sh")

PAGES: Final = [
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "docs" / "tutorials" / "existing-celery-app.md",
]
BLOCKS: Final = {page.stem: [block for block in read_blocks(page) if block.language in SHELL] for page in PAGES}
LINES: Final = [line for blocks in BLOCKS.values() for block in blocks for line in block.commands()]

#: What does not run here, by the beginning of its line, and why.
NOT_RUN: Final = {
    "pip install": "it installs from an index; tests/compose builds the image with the extras",
    "kubectl ": "no cluster is here",
    "useradd ": "no test makes users of the machine",
    "cp deploy/systemd": "systemd does not run here; tests/unit/test_systemd_units.py lets it read the units",
    "echo WORKER_METRICS_PORT": "the same",
    "systemctl ": "the same",
    "systemd-run ": "the same",
    "helm ": "the same; tests/contract/test_helm_chart.py makes the manifests",
    "export KAFKA_OAUTH_CB": "it needs a login: tests/integration/test_kafka_logins.py",
    "export CELERY_BROKER_URL='rediss:": "the Redis of this world has no TLS",
    "export CELERY_BROKER_URL='sentinel:": "tests/integration/test_sentinel.py has Sentinels",
}
#: What a reader puts in the place of a word of a page, by the word; `…` is a secret.
PLACEHOLDERS: Final[dict[str, Callable[[PageWorld], str]]] = {
    "localhost:9092": lambda world: world.kafka.bootstrap_servers,
    # The same Kafka, where `orders` has handlers.
    "orders --to-kafka sandbox:9093": lambda world: f"copies --to-kafka {world.kafka.bootstrap_servers}",
    "KAFKA_SECURITY_PROTOCOL=SSL": lambda _: "KAFKA_SECURITY_PROTOCOL=PLAINTEXT",
    "SASL_SSL": lambda _: "PLAINTEXT",  # the Kafka of the tests has neither users nor certificates
    "DEADLETTERS_SECRET_KEY=…": lambda _: f"DEADLETTERS_SECRET_KEY={b64encode(bytes(32)).decode()}",
    "orders-3-1234": lambda _: "orders-0-0",
    "postgresql://desk:secret@db/letters": lambda world: world.database_url,
    "postgresql://…": lambda world: f"sqlite:///{world.folder}/copy.db",
}
#: What happens before a line, by words of it.
BEFORE: Final[dict[str, Callable[[PageWorld], None]]] = {
    "bridge discard": PageWorld.queue_deliveries,
    "bridge reset": PageWorld.stop_bridge,
    "bridge redrive": PageWorld.run_processes,
    "--rate 200": PageWorld.bring_bank_back,
}
#: A line that sets variables and runs nothing. A block of such lines is what `bridge check` judges.
SETTING: Final = re.compile(r"(export )?([A-Z_]+=(\"[^\"]*\"|\S*)\s*)+(#.*)?$")
#: What exits otherwise than with 0, and with what.
EXIT_CODES: Final = {
    "bridge deadletters replay --group 1 --canary --wait": 3,  # the page shows a canary that stops
}
#: What a reader ends in the page's other terminals before a line: offsets are set while a group has no member.
ENDED_BEFORE: Final = ("kafka-consumer-groups.sh", "bridge reset")


@pytest.fixture(scope="module")
def world(redis_shared: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageWorld]:
    """One world for all pages."""
    need(kafka_server.missing())
    need(kcat.missing())
    with KafkaServer() as kafka:
        made = PageWorld(kafka, redis_shared.fresh_url(), tmp_path_factory.mktemp("world"))
        try:
            own_app = find_block(read_blocks(PAGES[-1]), 'Celery("mysite", include')
            made.write_file(own_app.file, own_app.text)
            made.start()
            yield made
        finally:
            made.close()


def fill(line: str, world: PageWorld) -> str:
    """Return a line with what its reader puts in for its placeholders."""
    for word, value in PLACEHOLDERS.items():
        line = line.replace(word, value(world))
    return line


def clean(text: str) -> str:
    """Return the shape of an output: without its numbers, and without the width of its lines and columns."""
    return " ".join(re.sub(r"\d[\d,.:-]*", "0", text).replace("─", "").split())


def run_block(block: Block, world: PageWorld, terminal: Terminal) -> None:
    """Run each command of a block; it must show what the page shows, apart from numbers."""
    steps = [step for step in block.steps() if not step.command.startswith(("# ", *NOT_RUN))]
    if steps and all(SETTING.match(step.command) for step in steps):
        terminal.run(f"set -a\n{fill(block.text, world)}bridge check")
        return
    for step in steps:
        if step.command.startswith(ENDED_BEFORE):
            terminal.close()
        for words, happens in BEFORE.items():
            if words in step.command:
                happens(world)
        shown = clean(terminal.run(fill(step.command, world), EXIT_CODES.get(step.command, 0)))
        assert [line for line in step.output.splitlines() if clean(line) not in shown] == [], shown


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks])
def test_the_commands_of_a_page_run_as_they_stand(page: str, world: PageWorld):
    world.run_processes()
    terminal = Terminal(world)
    try:
        for block in BLOCKS[page]:
            if re.match(r"(\$ )?export ", block.text):
                terminal.exported = ""
            run_block(block, world, terminal)
    finally:
        terminal.close()


@pytest.mark.parametrize("words", [*NOT_RUN, *PLACEHOLDERS, *BEFORE, *EXIT_CODES, *ENDED_BEFORE])
def test_what_is_declared_of_a_line_is_on_a_page(words: str):
    assert any(words in line for line in LINES)
