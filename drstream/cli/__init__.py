"""The command line: one file for each command."""


def main() -> None:
    """Run the command line, which Ctrl-C and SIGTERM end at any moment."""
    from drstream.cli import signals

    signals.end_at_once()  # nothing has begun yet, and modules that are being imported may swallow exceptions
    from drstream.cli.app import run

    try:
        run()
    finally:
        signals.end_at_once()  # all is done, but for the end of the interpreter


__all__ = ["main"]
