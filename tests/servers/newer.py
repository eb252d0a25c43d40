"""Newer servers than the system's, unpacked by `make newer-servers`."""

from pathlib import Path
from typing import Final

ROOT: Final = str(Path(__file__).parents[2] / ".newer" / "root")
MISSING: Final = "no newer servers: `make newer-servers` unpacks them (needs apt-get)"
