"""How work is run: threads, executors, worker processes, and what they show."""
