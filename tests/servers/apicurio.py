"""A real Apicurio Registry, in memory, on 127.0.0.1; it speaks Confluent's API too."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

from tests.servers.process import ServerFailed, ServerProcess, free_port
from tests.servers.server import Server

_JAR = Path(__file__).parents[2] / ".kafka" / "apicurio" / "quarkus-run.jar"
#: The oldest Java that runs it.
_JAVA = 21


def find_java() -> str | None:
    """Return a Java that is new enough, or None."""
    for java in _list_javas():
        said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True).stderr
        if (found := re.search(r'version "(\d+)', said)) and int(found[1]) >= _JAVA:
            return java
    return None


def _list_javas() -> Iterator[str]:
    if (java := shutil.which("java")) is not None:
        yield java
    yield from map(str, sorted(Path("/usr/lib/jvm").glob("*/bin/java")))


def missing() -> str | None:
    """Why none can be started here and what to do about it, or None if one can."""
    if not _JAR.exists():
        return "no Apicurio: it is missing (`make apicurio` fetches it)"
    return None if find_java() else f"no Apicurio: it needs Java {_JAVA} or newer"


class ApicurioServer(Server):
    """A registry, whose schemas go with its process."""

    def __init__(self, patience: float = 240):
        super().__init__("apicurio")
        java = find_java()
        if java is None:
            raise ServerFailed(missing() or "no java")
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": free_port(),
        }
        command = [java, "-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [*(f"-D{name}={value}" for name, value in options.items()), "-jar", str(_JAR)]
        self.process = ServerProcess(command, self.folder, self._answers, patience)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/schemas/types", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
