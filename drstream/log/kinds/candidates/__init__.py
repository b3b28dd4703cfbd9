"""One candidate for each event, of a list of its own."""
