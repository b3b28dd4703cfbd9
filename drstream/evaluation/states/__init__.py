"""States that last: what a pass has summed up, as files that can be merged without the logs."""
