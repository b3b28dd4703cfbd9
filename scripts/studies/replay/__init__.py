"""How far replay is from true online runs of the same learner: simulated logs, results, and the page."""
