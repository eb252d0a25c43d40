"""The commands: parse, call, print."""

from bridge.cli.root_command import cli, main

__all__ = ["cli", "main"]
