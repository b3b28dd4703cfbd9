"""One action for each event, of a set of its own among actions that all events share."""
