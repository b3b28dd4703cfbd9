"""What lasts: the format of files, checkpoints of runs, and whether two runs are the same."""
