"""Another Kafka, for copies: which one a plan may say, how to get in stands in the environment or in a file alone.

What a plan keeps of it lies in the database, so it is an address or the path of a file, and never a password.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from bridge.errors import CopyRefused
from bridge.kafka import property_fault

#: `TARGET_KAFKA_SASL_PASSWORD` is librdkafka's `sasl.password`, for the other Kafka.
PREFIX: Final = "TARGET_KAFKA_"
_ADDRESS: Final = re.compile(r"(?:[A-Za-z_]+://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


@dataclass(frozen=True, slots=True)
class Target:
    """Which Kafka.

    Attributes:
        addresses: `bootstrap.servers`; empty where the file says it.
        file: the path of a file of librdkafka's properties, a `name=value` a line; empty: none.
    """

    addresses: str = ""
    file: str = ""

    @classmethod
    def read(cls, said: str) -> Self:
        """What a person wrote: addresses (`host:9092,host:9092`), or the path of a file of properties.

        Raises:
            CopyRefused: it is neither.
        """
        if all(_ADDRESS.fullmatch(part.strip()) for part in said.split(",")):
            return cls(addresses=said)
        if Path(said).is_file():
            return cls(file=str(Path(said).resolve()))
        # Not what was written: who mistakes the form may have written a password.
        raise CopyRefused(
            "What --to-kafka was given is neither addresses (host:9092,host:9092) nor a file of Kafka properties that "
            f"is there. User and password go into that file, or into {PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD."
        )

    @classmethod
    def configured(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The one that whoever runs this process has named: who asks over a network names none.

        Raises:
            CopyRefused: they have named none.
        """
        if addresses := environ.get(f"{PREFIX}BOOTSTRAP_SERVERS"):
            return cls(addresses=addresses)
        raise CopyRefused(
            f"No other Kafka is configured here: whoever runs the console sets {PREFIX}BOOTSTRAP_SERVERS, and how to "
            "get in, for it and for bridge deadletters record. A request names no address."
        )

    @property
    def name(self) -> str:
        """For people."""
        return self.addresses or self.file

    def properties(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """librdkafka's properties for it: the file's, over them the environment's, over them the addresses.

        Raises:
            CopyRefused: the file is not there, or a property is none; says which one, and no value.
        """
        found = {**self._of_file(), **_of_environment(environ)}
        if self.addresses:
            found["bootstrap.servers"] = self.addresses
        if "bootstrap.servers" not in found:
            raise CopyRefused(f"{self.file} does not say which Kafka: it has no bootstrap.servers.")
        for name, value in found.items():
            if property_fault(name, value) is not None:
                raise CopyRefused(f"Kafka's client does not take {name!r} as it is set for {self.name}.")
        return found

    def _of_file(self) -> dict[str, str]:
        if not self.file:
            return {}
        try:
            return dict(_lines(Path(self.file).read_text().splitlines(), self.file))
        except (OSError, UnicodeDecodeError) as error:
            raise CopyRefused(f"{self.file} cannot be read here: {type(error).__name__}.") from None


def _lines(lines: Iterable[str], file: str) -> Iterable[tuple[str, str]]:
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise CopyRefused(f"Line {number} of {file} is no name=value.")
        yield name.strip(), value.strip()


def _of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and value
    }
