"""Where the time of a pass goes."""
