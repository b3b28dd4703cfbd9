"""The command line: one file a command."""

from drstream.cli.main import main

__all__ = ["main"]
