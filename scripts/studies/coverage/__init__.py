"""How often intervals cover the truth, measured in simulated logs."""
