"""A list of items for each event, which were shown together."""
