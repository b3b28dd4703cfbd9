"""One action for each event, of a set that all events share."""
