"""What lasts: the format of files, checkpoints of runs, whether two runs are the same, and marks of parts of logs."""
