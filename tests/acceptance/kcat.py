"""Records by another client: kcat, from Debian's packages."""

import shutil
import subprocess
from collections.abc import Sequence

from tests.servers.missing import need

#: Between two records on kcat's input: no byte of any record of the tests.
DELIMITER = b"\x1e\x1e"


def missing() -> str | None:
    """Why kcat cannot be used here, or None if it can."""
    if shutil.which("kcat") is None:
        return "kcat is missing (on Debian: apt install kcat)"
    return None


def produce(
    kafka: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    key: bytes = b"",
    headers: Sequence[str] = (),
) -> None:
    """Produce values; None is a tombstone. Headers are `name=value`, as kcat takes them."""
    need(missing())
    command = ["kcat", "-b", kafka, "-t", topic, "-P", "-Z", "-D", DELIMITER.decode(), "-X", "acks=all"]
    for header in headers:
        command += ["-H", header]
    if key:
        command += ["-K", "\x1f\x1f"]
    lines = [(key + b"\x1f\x1f" if key else b"") + (value or b"") for value in values]
    subprocess.run(command, input=DELIMITER.join(lines), check=True, timeout=60, capture_output=True)
