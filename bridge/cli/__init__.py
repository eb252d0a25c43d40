"""The commands: parse, call, print."""

from bridge.cli.entry import cli, main

__all__ = ["cli", "main"]
