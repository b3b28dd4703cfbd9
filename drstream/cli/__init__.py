"""The command line: one file for each command."""

from drstream.cli.main import main

__all__ = ["main"]
