"""What executors cost: threads, worker processes, Dask and Spark on one log."""
