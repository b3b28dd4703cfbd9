"""Before a long run: what its result will be able to tell, and how many events it takes, from a sample of the log."""
