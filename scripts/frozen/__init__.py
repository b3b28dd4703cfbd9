"""The cases of `scripts/bits`: fixed logs, the calls that are made on them, and what is kept of their results."""
